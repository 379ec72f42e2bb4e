"""The words the corpus is made of: common English in order of frequency, the words of the trade, and made-up ones."""

from __future__ import annotations

from functools import cache
from itertools import zip_longest
from random import Random

COMMON = """
the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had they you
were there one all we can her has been if more when will would who so no she other its may these what them than some
him time into only do such my new about out also two any up first could our then most me should after said your over
now where how made between years before many those must through being much did well back us work even good same still
off every while own just see people know last long make again way part down right under get use might great little
against here both does want need next each going without around another because keep however something though thing
things few since three never always whether kind left already enough really start seems show look case point end
problem question reason think change place line side try sure probably instead once find fine run runs running still
again works worked broken fix fixed fails failed failing wrong missing extra expected actual later sometimes currently
please thanks let let's check looks looking added removed moved updated changed makes means using used done doing goes
read write open close call called returns returned given takes took came come better best less least different similar
simple small large big full empty old older newer fast slow hard easy clear clean exactly directly instead both either
neither anything everything nothing someone everyone today yesterday tomorrow week month day hour minute second now
then yes okay maybe perhaps actually basically usually often rarely nearly almost quite rather very too again together
above below inside outside within across along behind beyond near far away onto upon toward during until unless
although whereas therefore thus hence otherwise meanwhile finally eventually previously recently initially
""".split()

TRADE = """
file function test error code value type name data class method user string list key path module server request
response client config build branch commit merge index query table column row cache token session event message
queue worker thread process lock timeout retry handler callback promise async await import export package version
release deploy docker container image volume network port host proxy socket stream buffer parser lexer syntax tree
node edge graph schema field record document database migration transaction rollback constraint foreign primary
unique default null undefined exception traceback stack trace frame line column offset length size limit page cursor
filter sort order group count sum average median percentile latency throughput memory disk cpu kernel driver device
terminal shell command argument flag option environment variable secret password credential permission role policy
header body cookie payload json yaml toml xml html css markdown regex pattern match replace split join format parse
encode decode serialize compress decompress encrypt decrypt hash checksum digest signature certificate key pair
endpoint route router controller view template component prop state store reducer action hook effect context provider
render layout style theme color font icon button input form label modal dialog menu tab panel sidebar toolbar
integration unit fixture mock stub snapshot coverage benchmark profile flame leak race deadlock mutex semaphore
channel goroutine coroutine fiber scheduler executor pool runtime interpreter compiler linker loader bytecode assembly
pointer reference borrow lifetime trait interface protocol abstract concrete generic template inheritance composition
singleton factory builder adapter facade observer visitor iterator generator decorator closure lambda macro annotation
repository remote origin upstream rebase cherry stash diff patch hunk conflict tag pipeline stage job artifact runner
cluster pod replica shard partition leader follower quorum consensus heartbeat lease failover backup restore snapshot
metric counter gauge histogram span log level debug info warning critical alert dashboard monitor telemetry sampling
vector embedding model prompt completion agent tool transcript turn reasoning summary tokenizer inference training
""".split()

_ONSETS = (
    "b br bl c cl cr d dr f fl fr g gl gr h j k kl l m n p pl pr qu r s sc sk sl sm sn sp st str t th tr v w z".split()
)
_VOWELS = "a e i o u a e i o ai ea ie oo ou".split()
_CODAS = "n r s t l m nd nt st ck x rd sh p".split() + [""] * 28
_VOCABULARY_SIZE = 40_000


def invented(random: Random) -> str:
    """A word that can be pronounced and, as far as anyone knows, means nothing."""
    syllables = random.choice((2, 2, 2, 3))
    return "".join(random.choice(_ONSETS) + random.choice(_VOWELS) + random.choice(_CODAS) for _ in range(syllables))


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word once, by rank. The words of the trade come between the common ones from rank 40 on."""
    common = list(dict.fromkeys(COMMON))
    rest = zip_longest(common[40:], [word for word in TRADE if word not in COMMON], fillvalue="")
    words = dict.fromkeys([*common[:40], *(word for pair in rest for word in pair if word)])
    random = Random("vocabulary")
    while len(words) < _VOCABULARY_SIZE:
        words.setdefault(invented(random))
    return tuple(words)


RARE_FROM = 4_000
"""The rank from which on a word counts as rare."""
