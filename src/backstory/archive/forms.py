"""Forms of English words that no stemmer brings together: `wrote` and `write`, `failure` and `fail`, `db` and
`database`.

A question mostly has the base form ("when did we choose ..."), what is found another one. A word that mostly means
something else (`left`, `ground`, `rose`, `saw`) is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

from .query import analyzer

_VERBS = """
arise arose arisen; awake awoke awoken; beat beaten; become became; begin began begun; bend bent; bind bound;
bite bit bitten; bleed bled; blow blew blown; break broke broken; breed bred; bring brought; build built; burn burnt;
buy bought; catch caught; choose chose chosen choice; cling clung; come came; creep crept; deal dealt; dig dug;
draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed;
feel felt; fight fought; find found; flee fled; fly flew flown; forbid forbade forbidden; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; give gave given; go went gone; grow grew grown growth; hang hung;
hear heard; hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lead led; lean leant; leap leapt;
learn learnt; lend lent; light lit; lose lost loss; make made; mean meant; meet met; mistake mistook mistaken;
override overrode overridden; oversee oversaw overseen; overwrite overwrote overwritten; pay paid; prove proven proof;
rebuild rebuilt; redo redid redone; rerun reran; resend resent; rethink rethought; rewrite rewrote rewritten;
ride rode ridden; ring rang rung; rise risen; run ran; say said; see seen; seek sought; sell sold sale; send sent;
shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk; sit sat;
sleep slept; slide slid; speak spoke spoken; spell spelt; spend spent; spin spun; spoil spoilt; stand stood;
steal stole stolen; stick stuck; sting stung; strike struck; swear swore sworn; sweep swept; swell swollen;
swim swam swum; swing swung; take took taken; teach taught; tear tore torn; tell told; think thought;
throw threw thrown; understand understood; undertake undertook undertaken; undo undid undone; wake woke woken;
wear wore worn; weave wove woven; weep wept; win won; withdraw withdrew withdrawn; withhold withheld;
write wrote written
"""
_NOUNS = """
analysis analyze; behavior behaviour; believe belief; child children; close closure; color colour; compare comparison;
conclude conclusion; consume consumption; convert conversion; criterion criteria; decide decision; deny denial;
describe description; destroy destruction; die death dead; divide division; exclude exclusion; expand expansion;
explain explanation; expose exposure; extend extension; fail failure; foot feet; half halves; include inclusion;
index indices; invert inversion; judgment judgement; knife knives; leaf leaves; life lives; loaf loaves;
maintain maintenance; man men; marry marriage; matrix matrices; mouse mice; perceive perception; permit permission;
person people; phenomenon phenomena; receive receipt reception; recover recovery; repeat repetition;
resolve resolution; respond response; seize seizure; shelf shelves; subscribe subscription; succeed success;
suspend suspension; tooth teeth; transmit transmission; vertex vertices; weigh weight; wife wives; woman women
"""
_SHORT = """
admin administrator; app application; arg argument; async asynchronous; auth authentication; config configuration;
db database; dep dependency; dev development; dir directory; doc documentation; env environment; err error;
exec execute; expr expression; func function; impl implementation; info information; init initialize; js javascript;
k8s kubernetes; lib library; msg message; param parameter; perf performance; pg postgres postgresql; prod production;
py python; ref reference; repo repository; req request; spec specification; sync synchronize; temp temporary;
ts typescript; var variable
"""


@lru_cache(maxsize=4_096)  # people ask for the same things again
def other_forms(word: str) -> tuple[str, ...]:
    """The stems of the other forms of an English word: `built` for `build` and `building`."""
    return tuple(form for stem in _english()(word) for form in _by_stem().get(stem, ()))


@cache
def _by_stem() -> dict[str, tuple[str, ...]]:
    groups = [_english()(group) for forms in (_VERBS, _NOUNS, _SHORT) for group in forms.split(";")]
    return {stem: tuple(other for other in group if other != stem) for group in groups for stem in group}


@cache
def _english() -> Callable[[str], list[str]]:
    return analyzer("en").analyze
