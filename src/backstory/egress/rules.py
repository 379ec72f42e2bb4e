"""The rules for secrets: what is replaced by `[redacted:<rule>]`.

A rule is precise (a vendor's prefix and length) or needs its context (`password=`, `://user:...@`). Rules are grouped
by a literal that every match contains: a pattern that starts with one is scanned at 1-2 GB/s, an alternation of
prefixes at 30 MB/s. A group's rules run only when its gate finds something.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from string import ascii_letters, digits
from typing import NamedTuple


class Group(NamedTuple):
    """Rule -> pattern. Patterns are compiled when first needed, which for most processes is never."""

    gate: re.Pattern[str]
    rules: dict[str, str]


# Both ends of a token are checked, so replacing one never makes its neighbour look like one: redacting twice changes
# nothing. A token that starts in a run of its own characters is no token: so a long run is scanned once.
_RIGHT = r"(?![0-9A-Za-z_])"
_RIGHT_URL = r"(?![\w-])"


def _token(prefix: str, body: str, inside: str = "0-9A-Za-z_") -> str:
    """A token by its prefix (of fixed width) and body. The prefix goes first because a literal is what `re` finds fast.

    Text that holds escaped JSON has a literal `\n` before a token, whose `n` is not part of it.
    """
    return rf"{prefix}(?:(?<![{inside}]{prefix})|(?<=\\[nrt]{prefix})){body}"


def _url_token(prefix: str, body: str) -> str:
    return _token(prefix, body, r"\w-")


def _mark(name: str) -> str:
    return f"[redacted:{name}]"


def _group(gate: str, **rules: str) -> Group:
    return Group(re.compile(gate, re.ASCII), {name.replace("_", "-"): pattern for name, pattern in rules.items()})


# Three decimal digits in base64, as in the user id a Discord token starts with.
_DIGITS_64 = "[MNO][DTjz][AEIMQUYcgk][w-z0-5]"
_GROUPS = (
    _group(
        r"_(?:(?<=(?:h[oprsu]|at|ve|st|hf|pm|v1|pi|th|tn|et|bp|ca|pa|ss|sa|ec|sk|r8)_)[0-9A-Za-z]{16}"
        r"|(?<=r_pat_)[\w-]{27})",
        github_token=_token("gh[oprsu]_", r"\w{36,}"),
        github_fine_grained_token=_token("github_pat_", r"\w{36,}"),
        stripe_key=_token("[rs]k_(?:live|test)_", rf"[0-9A-Za-z]{{16,}}{_RIGHT}"),
        stripe_webhook_secret=_token("whsec_", rf"[0-9A-Za-z]{{32,}}{_RIGHT}"),
        huggingface_token=_token("hf_", rf"[0-9A-Za-z]{{30,}}{_RIGHT}"),
        npm_token=_token("npm_", rf"[0-9A-Za-z]{{36}}{_RIGHT}"),
        digitalocean_token=_token("do[opr]_v1_", rf"[0-9a-f]{{64}}{_RIGHT}"),
        linear_key=_token("lin_", rf"(?:api|oauth)_[0-9A-Za-z]{{32,}}{_RIGHT}"),
        notion_token=_token("ntn_", rf"[0-9A-Za-z]{{40,}}{_RIGHT}"),
        notion_secret=_token("secret_", rf"[0-9A-Za-z]{{43}}{_RIGHT}"),
        supabase_token=_token("sbp_", rf"[0-9a-f]{{40}}{_RIGHT}"),
        shopify_token=_token("shp(?:at|ca|pa|ss)_", rf"[0-9a-fA-F]{{32}}{_RIGHT}"),
        grafana_token=_token("glsa_", rf"[0-9A-Za-z]{{32}}_[0-9a-fA-F]{{8}}{_RIGHT}"),
        groq_key=_token("gsk_", rf"[0-9A-Za-z]{{48,}}{_RIGHT}"),
        replicate_token=_token("r8_", rf"[0-9A-Za-z]{{37}}{_RIGHT}"),
        docker_token=_token("dckr_pat_", r"[\w-]{27,}"),
    ),
    _group(
        r"-(?:(?<=sk-)(?:(?<![0-9A-Za-z]sk-)|(?<=\\[nrt]sk-))|(?<=glpat-)|(?<=xox[a-z]-)|(?<=pypi-)|(?<=key-)|(?<=xai-)|(?<=pplx-)|----BEGIN)",
        private_key=(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:"
            # A block in which one was replaced before is not one: redacting twice changes nothing.
            r"(?:[^-\[]++|-(?!----)|\[(?!redacted:private-key\]))*+"
            r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
            # A torn block: the lines of it that are there, and the beginning of one at which a text was cut.
            r"|(?:(?:\s|\\[nr])*+[0-9A-Za-z+/=]{40,}+)*+(?:(?:\s|\\[nr])*+[0-9A-Za-z+/=]++(?=…)|(?<=[0-9A-Za-z+/=]{40})))"
        ),
        anthropic_key=_token("sk-ant-", r"[\w-]{24,}"),
        openai_key=_token("sk-", rf"(?:(?:proj|svcacct|admin)-[\w-]{{24,}}|(?:or-v1-)?[0-9A-Za-z]{{32,}}{_RIGHT})"),
        gitlab_token=_token("glpat-", rf"[\w-]{{20,}}(?:\.[0-9a-z.]{{6,20}}{_RIGHT})?"),
        slack_token=_token("xox[abeoprs]-", rf"[0-9A-Za-z-]{{10,}}{_RIGHT}"),
        pypi_token=_token("pypi-AgE", r"[\w-]{50,}"),
        mailgun_key=_token("key-", rf"[0-9a-f]{{32}}{_RIGHT}"),
        xai_key=_token("xai-", rf"[0-9A-Za-z]{{64,}}{_RIGHT}"),
        perplexity_key=_token("pplx-", rf"[0-9A-Za-z]{{40,}}{_RIGHT}"),
    ),
    _group(
        r"\.(?:eyJ|(?<=(?:SG|29|v[bs])\.)[\w-]{16}|(?<=dp\.[a-z]{2}\.)|(?<=hooks\.)slack"
        r"|com/api/webhooks/|[\w-]{6}\.[\w-]{27})",
        jwt=_url_token("eyJ", r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*"),
        sendgrid_key=_token("SG\\.", r"[\w-]{16,32}\.[\w-]{32,}"),
        google_oauth_token=_token("ya29\\.", r"[\w-]{20,}"),
        vault_token=_token("hv[bs]\\.", r"[\w-]{24,}"),
        doppler_token=_token("dp\\.[a-z]{2}\\.", rf"(?:[\w-]{{2,35}}\.)?[0-9A-Za-z]{{40,44}}{_RIGHT}"),
        slack_webhook=r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/+-]{20,}",
        discord_webhook=r"(discord(?:app)?\.com/api/webhooks/)\d{17,20}/[\w-]{60,}",
        discord_token=_url_token(
            _DIGITS_64, rf"(?:{_DIGITS_64}){{4,6}}[\w-]{{0,4}}\.[\w-]{{6}}\.[\w-]{{27,45}}{_RIGHT_URL}"
        ),
    ),
    _group(
        r"A(?:KIA|SIA|Iza|TATT3|GE-SEC)",
        aws_access_key_id=_token("A(?:KIA|SIA)", rf"[0-9A-Z]{{16}}{_RIGHT}"),
        google_api_key=_token("AIza", rf"[\w-]{{35}}{_RIGHT_URL}"),
        atlassian_token=_token("ATATT3", r"[\w=-]{60,}"),
        age_secret_key=_token("AGE-SECRET-KEY-1", rf"[0-9A-Z]{{58}}{_RIGHT}"),
    ),
    # Names are compared in lower case, and some answers show them so.
    _group(r"akia[0-9a-z]{16}", aws_access_key_id=_token("akia", rf"[0-9a-z]{{16}}{_RIGHT}")),
    _group(r"SK[0-9a-f]{32}", twilio_key=_token("SK", rf"[0-9a-f]{{32}}{_RIGHT}")),
    _group(r"dapi[0-9a-f]{32}", databricks_token=_token("dapi", rf"[0-9a-f]{{32}}(?:-\d)?{_RIGHT}")),
    _group(r"Bearer [\w.~+/-]{20}", bearer_token=r"(Bearer )(?=[^\s\d]{0,64}\d)[\w.~+/-]{20,}=*"),
    _group(
        r":(?:AA[\w-]{33}|//[^\s/:@]{0,64}:[^\s/@]{3,127}@|(?i:(?<=ization:)|(?<=ization[\"']:)|(?<=ization\\[\"']:)))",
        telegram_token=r"(?:(?<![\w:])|(?<=\\[nrt]))\d{8,10}:AA[\w-]{33}(?![\w-])",
        # Not a template (`${PASS}`, `<pass>`, `%s`) and not the word itself, as in every manual.
        url_password=r"(://[^\s/:@\"'`<>]{0,64}:)(?!(?i:password|passwd|pass|pwd|secret|token|x+|\*+|\.+)@)"
        r"[^\s/@\"'`<>\[\]{}$%\\][^\s/@\"'`<>\[\]{}$\\]{2,126}(?=@[\w\[])",
        authorization_header=r"((?i:authorization)\\?[\"']?:\s?\\?[\"']?(?i:bearer|basic|token) )[\w.~+/-]{8,}=*",
    ),
)

# `name = value` with the name of a secret. The scan is anchored at the sign, so that it costs little elsewhere: how
# such names end (passwoRD, pWD, secrET, tokEN, kEY) is in the pattern, the name itself is checked for what is left.
_LITERAL = re.compile(r"[^\s\"'`\\\[\]{}<>]{8,4096}+")
_QUOTED = rf"\\{{0,3}}[\"'`](?P<quoted>{_LITERAL.pattern})(?=\\{{0,3}}[\"'`])"
# Neither sign is part of a bare value: so no character is looked at by more than one attempt.
_BARE = r"(?P<bare>[\w+/.~!@#$%^*?-]{8,4096}+={0,2}+)(?=[\s,;&|)\]}\"'`\\<]|$)"


def _assignment(sign: str, rest: str) -> re.Pattern[str]:
    ending = r"(?:[rwRW][dD]|[eE][ntyNTY])"
    before = "|".join(rf"(?<={text}{sign})" for text in (ending, ending + r"[ \"']", ending + r"[\"'\\][ \"']", "  "))
    return re.compile(rf"{sign}(?:{before}){rest}\s{{0,4}}+(?:{_QUOTED}|{_BARE})", re.ASCII)


_ASSIGNMENTS = (_assignment("=", "[=>]{0,2}+"), _assignment(":", "=?+"))
_NAME_CHARS = 48
# How a name ends, without case, dashes and underscores -> the rule for its values. The first match counts.
_NAMES: dict[tuple[str, ...], str | None] = {
    ("pagetoken", "nexttoken"): None,
    ("secretaccesskey", "awssecretkey"): "aws-secret-key",
    ("accountkey", "sharedaccesskey"): "azure-key",
    ("password", "passwd", "pwd"): "password",
    (
        "secret",
        "token",
        *(f"{kind}key" for kind in "api access secret private auth encryption signing master client".split()),
    ): "secret",
}
_SHAPES = {"aws-secret-key": re.compile(r"[0-9A-Za-z+/]{40}"), "azure-key": re.compile(r"[0-9A-Za-z+/]{40,}={0,2}")}
# Placeholders for a value: references, code, paths, and the words of manuals.
_STAND_IN = re.compile(
    r"[$%/.~]|\w+://|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[!?]?$"
    r"|.*(?:example|placeholder|your|change.?me|dummy|redacted|xxxx|\*\*\*|\.\.\.)",
    re.IGNORECASE | re.ASCII,
)
_DIGITS = re.compile(r"[0-9]+")
_LETTER = re.compile(r"[A-Za-z]")
_SYMBOL = re.compile(r"[!@#$%^*?~+]")
_WORDS = re.compile(r"[a-z]{4,}|[A-Z]{4,}")

# Titles and excerpts were cut before they came here: they end with the beginning of a secret, too short for its rule.
_CUT = "…"
_CUT_GATE = re.compile(rf"{_CUT}(?<=[^\s{_CUT}]{_CUT})")
_CUT_TOKEN = "cut-token"
_TOKEN_CHARS = f"{ascii_letters}{digits}_.+/=-"
_TOKEN_START = re.compile(
    r"(?:(?<![0-9A-Za-z_-])|(?<=\\[nrt]))(?:gh[oprsu]_|github_pat_|[rs]k_(?:live|test)_|whsec_|hf_|npm_|do[opr]_v1_"
    r"|lin_(?:api|oauth)_|ntn_|sbp_|shp(?:at|ca|pa|ss)_|glsa_|gsk_|r8_|dckr_pat_|sk-|glpat-|xox[abeoprs]-|pypi-AgE|xai-"
    r"|pplx-|eyJ|SG\.|ya29\.|hv[bs]\.|A(?:KIA|SIA|Iza|TATT3|GE-SECRET-KEY-1)|akia)",
    re.ASCII,
)
_LEAST_CUT_CHARS = 4
# Secrets by their context, under the names of their rules. One sign of these is in each, and in most a digit.
_END_CHARS = 512
_SIGN = r"\\{0,3}[\"']?\s?[=:][=>]{0,2}\s?\\{0,3}[\"'`]?(?=[^\s\d]{0,64}\d)"
_KEYS = "api|access|secret|private|auth|encryption|signing|master|client|account"
_END_SIGNS = re.compile(r"://|Bearer |:AA|(?i:passw|pwd|secret|token|key|authorization)", re.ASCII)
_END_RULES = {
    # Not the port of an address.
    "url-password": r"(://[^\s/:@\"'`<>]{0,64}:)(?=\d*[^\d\s/@])[^\s/@\"'`<>\[\]{}$\\]++\Z",
    "bearer-token": r"(Bearer )(?=[^\s\d]{0,64}\d)[\w.~+/-]++\Z",
    "authorization-header": r"((?i:authorization)\\?[\"']?:\s?\\?[\"']?(?i:basic|token) )[\w.~+/-]++\Z",
    "telegram-token": r"(?:(?<![\w:])|(?<=\\[nrt]))\d{8,10}:AA[\w-]++\Z",
    "password": rf"((?i:passw(?:or)?d|pwd){_SIGN})[^\s\"'`\\\[\]{{}}<>]++\Z",
    "secret": rf"((?i:secret|token|(?:{_KEYS})[_-]?key){_SIGN})[\w+/.~=-]++\Z",
}

RULES: tuple[str, ...] = tuple(
    dict.fromkeys((*(name for group in _GROUPS for name in group.rules), *filter(None, _NAMES.values()), _CUT_TOKEN))
)


def redact(text: str) -> str:
    """The text with every secret replaced by `[redacted:<rule>]`. Time is linear in its length for any text."""
    for gate, rules in _GROUPS:
        if gate.search(text):
            for name, pattern in rules.items():
                text = _apply(name, pattern, text)
    for assignment in _ASSIGNMENTS:
        text = assignment.sub(_redact_assignment, text)
    if _CUT_GATE.search(text):
        *parts, rest = text.split(_CUT)
        text = _CUT.join((*map(_redact_end, parts), rest))
    return text


_MARK = re.compile(rb"\[redacted:(?:" + "|".join(RULES).encode() + rb")\]")


def count_redacted(encoded: bytes) -> int:
    """The number of secrets that are replaced in a text or its JSON, in UTF-8."""
    return len(_MARK.findall(encoded))


# More line breaks than any pattern but that of a private key crosses, and that one is recognised by its beginning.
BETWEEN = "\n" * 5


def suspects(texts: Sequence[str]) -> set[int]:
    """The places of the texts that may hold a secret; `redact` leaves all others unchanged."""
    joined = BETWEEN.join(texts)
    scans = (*(group.gate for group in _GROUPS), *_ASSIGNMENTS, _CUT_GATE)
    found = [match.start() for scan in scans for match in scan.finditer(joined)]
    if not found:
        return set()
    starts = list(accumulate((len(text) + len(BETWEEN) for text in texts), initial=0))
    return {bisect_right(starts, place) - 1 for place in found}


def _redact_end(text: str) -> str:
    """A text that is cut off, without the beginning of a secret at its end."""
    # The first beginning in the last word decides, so that the word is looked at once.
    start = _TOKEN_START.search(text, len(text.rstrip(_TOKEN_CHARS)))
    if start and len(text) >= start.end() + _LEAST_CUT_CHARS and _DIGITS.search(text, start.end()):
        return text[: start.start()] + _mark(_CUT_TOKEN)
    head, end = text[:-_END_CHARS], text[-_END_CHARS:]
    if _END_SIGNS.search(end):
        for name, pattern in _END_RULES.items():
            end = _apply(name, pattern, end)
    return head + end


def _apply(name: str, pattern: str, text: str) -> str:
    """Group 1, where a pattern has one, is context that stays."""
    compiled = _compiled(pattern)
    return compiled.sub((r"\1" if compiled.groups else "") + _mark(name), text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _redact_assignment(match: re.Match[str]) -> str:
    start = match.start()
    quoted = match["quoted"]
    name = match.string[max(0, start - _NAME_CHARS) : start]
    rule = _assigned_rule(name, quoted or match["bare"], literal=quoted is not None)
    if not rule:
        return match[0]
    return match.string[start : match.start("quoted" if quoted else "bare")] + _mark(rule)


def _rule_of_name(name: str) -> str | None:
    """The rule for the values of a name, by its ending."""
    word = name.rstrip(" \t\"'\\").lower().replace("_", "").replace("-", "")
    return next((rule for endings, rule in _NAMES.items() if word.endswith(endings)), None)


def _assigned_rule(name: str, value: str, *, literal: bool) -> str | None:
    """The rule by which a value given to this name is a secret. A bare value may be code, a literal is not."""
    rule = _rule_of_name(name)
    if rule in _SHAPES and _SHAPES[rule].fullmatch(value):
        return rule
    if not rule or _STAND_IN.match(value) or not _LETTER.search(value):
        return None
    digit_runs = len(_DIGITS.findall(value))
    if rule == "password":
        strong = digit_runs > 0 and (literal or digit_runs > 1 or _SYMBOL.search(value))
        return rule if strong else None
    if len(value) < (16 if literal else 20) or digit_runs < 2 or len(set(value)) < 8:
        return None
    # Identifiers are made of words; a random token has few letters in a row, or many changes.
    in_words = sum(map(len, _WORDS.findall(value)))
    return "secret" if in_words <= 0.4 * len(value) or digit_runs > len(value) / 6 else None


@lru_cache(4096)
def rule_of_field(key: str) -> str | None:
    return _rule_of_name(key[-_NAME_CHARS:])


def redact_field(key: str, text: str) -> str:
    """A field is an assignment too: `{"password": "..."}`."""
    if not rule_of_field(key) or not _LITERAL.fullmatch(text):
        return text
    rule = _assigned_rule(key[-_NAME_CHARS:], text, literal=True)
    return _mark(rule) if rule else text
