"""Secrets and hostile characters. Every secret is made up, and put together at run time so that no scanner minds."""

from __future__ import annotations

import random
import string
import time
import unicodedata
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.egress import RULES, clean, egress, redact

HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
ALNUM = string.ascii_letters + string.digits
URL = ALNUM + "_-"


def body(length: int, alphabet: str = ALNUM) -> str:
    """A body that looks random, starts and ends with a letter or digit, and is the same in every run."""
    picker = random.Random(f"{length}{alphabet}")
    inner = "".join(picker.choices(alphabet, k=length - 2))
    return f"{'7' if '7' in alphabet else 'k'}{inner}{'f' if 'f' in alphabet else 'F'}"


def pem(kind: str = "", end: str = "") -> str:
    text = "\n".join(body(64, ALNUM + "+/") for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE " + f"KEY{end}-----\n{text}\n-----END {kind}PRIVATE " + f"KEY{end}-----"


# Rule -> tokens that are found wherever they stand.
TOKENS: dict[str, list[str]] = {
    "github-token": [f"gh{kind}" + "_" + body(36) for kind in "posur"],
    "github-fine-grained-token": ["github" + "_pat_" + body(22) + "_" + body(59)],
    "stripe-key": ["sk" + "_live_" + body(24), "rk" + "_live_" + body(99), "sk" + "_test_" + body(24)],
    "stripe-webhook-secret": ["whsec" + "_" + body(32)],
    "huggingface-token": ["hf" + "_" + body(34, string.ascii_letters)],
    "npm-token": ["npm" + "_" + body(36)],
    "digitalocean-token": ["dop" + "_v1_" + body(64, HEX)],
    "linear-key": ["lin" + "_api_" + body(40)],
    "notion-token": ["ntn" + "_" + body(46)],
    "notion-secret": ["secret" + "_" + body(43)],
    "supabase-token": ["sbp" + "_" + body(40, HEX)],
    "shopify-token": [f"shp{kind}" + "_" + body(32, HEX) for kind in ("at", "ca", "pa", "ss")],
    "grafana-token": ["glsa" + "_" + body(32) + "_" + body(8, HEX)],
    "groq-key": ["gsk" + "_" + body(52)],
    "replicate-token": ["r8" + "_" + body(37)],
    "docker-token": ["dckr" + "_pat_" + body(27, URL)],
    "private-key": [
        pem(),
        pem("RSA "),
        pem("OPENSSH "),
        pem("EC "),
        pem("PGP ", " BLOCK"),
        pem().replace("\n", "\\n"),
        pem()[:700],
    ],
    "anthropic-key": ["sk" + "-ant-api03-" + body(95, URL), "sk" + "-ant-admin01-" + body(95, URL)],
    "openai-key": ["sk" + "-" + body(48), "sk" + "-proj-" + body(120, URL), "sk" + "-or-v1-" + body(64, HEX)],
    "gitlab-token": ["glpat" + "-" + body(20, URL), "glpat" + "-" + body(51) + ".01." + body(9, HEX)],
    "slack-token": ["xox" + f"{kind}-123456789012-1234567890123-" + body(24) for kind in "abprs"],
    "pypi-token": ["pypi" + "-AgEIcHlwaS5vcmc" + body(140, URL)],
    "mailgun-key": ["key" + "-" + body(32, HEX)],
    "xai-key": ["xai" + "-" + body(80)],
    "perplexity-key": ["pplx" + "-" + body(48)],
    "jwt": ["ey" + "J" + body(33, URL) + ".ey" + "J" + body(80, URL) + "." + body(43, URL)],
    "sendgrid-key": ["SG" + "." + body(22, URL) + "." + body(43, URL)],
    "google-oauth-token": ["ya29" + "." + body(120, URL)],
    "vault-token": ["hvs" + "." + body(90, URL), "hvb" + "." + body(90, URL)],
    "doppler-token": ["dp" + ".pt." + body(43), "dp" + ".st.dev." + body(43)],
    "discord-token": ["MTk4NjIyNDgzNDcxOTI1MjQ4." + body(6, URL) + "." + body(38, URL)],
    "aws-access-key-id": ["AK" + "IA" + body(16, UPPER), "AS" + "IA" + body(16, UPPER)],
    "google-api-key": ["AI" + "za" + body(35, URL)],
    "atlassian-token": ["ATATT3" + "xFfGF0" + body(180, URL) + "=7F3A2B1C"],
    "age-secret-key": ["AGE-SECRET" + "-KEY-1" + body(58, UPPER)],
    "twilio-key": ["SK" + body(32, HEX)],
    "databricks-token": ["dapi" + body(32, HEX), "dapi" + body(32, HEX) + "-2"],
    "telegram-token": ["123456789" + ":AA" + body(33, URL)],
}

# Rule -> (text, the part of it that is secret): found by what stands around it.
IN_CONTEXT: dict[str, list[tuple[str, str]]] = {
    "cut-token": [
        (f"a title that ends in {token[:length]}…", token[:length])
        for token in ("gh" + "p_" + body(20), "AK" + "IA" + body(12, UPPER), "sk" + "-ant-api03-" + body(9))
        for length in (12, 15)
    ],
    "slack-webhook": [("https://hooks.slack.com/services/" + (s := f"T{body(8)}/B{body(9)}/{body(24)}") + " posts", s)],
    "discord-webhook": [("https://discord.com/api/webhooks/" + (s := "123456789012345678/" + body(68, URL)), s)],
    "bearer-token": [('headers["X"] = "Bearer ' + (s := body(40, URL)) + '"', s)],
    "url-password": [
        ("postgres://app:" + (s := "s3cr3t-Pa55") + "@db.internal:5432/app", s),
        ("git clone https://bot:" + (s := body(20)) + "@example.com/x.git", s),
        ("redis://:" + (s := "f00.bar") + "@127.0.0.1", s),
    ],
    "authorization-header": [
        ("Authorization: Basic " + (s := "dXNlcjpwYXNz"), s),
        ('curl -H "authorization: bearer ' + (s := body(18)) + '"', s),
        ('{\\"Authorization\\": \\"token ' + (s := body(30, HEX)) + '\\"}', s),
    ],
    "aws-secret-key": [
        ("aws_secret_access_key = " + (s := body(40, ALNUM + "+/")), s),
        ("AWS_SECRET_ACCESS_KEY=" + (s := body(40, ALNUM + "+/")) + "\n", s),
        ('"awsSecretAccessKey": "' + (s := body(40, ALNUM + "+/")) + '"', s),
    ],
    "azure-key": [("AccountName=x;AccountKey=" + (s := body(86, ALNUM + "+/") + "==") + ";EndpointSuffix=y", s)],
    "password": [
        ("DB_PASSWORD=" + (s := "tr0ub4dor&3"[:9]), s),
        ("password: '" + (s := "correcthorse9") + "'", s),
        ('"password" : "' + (s := "p(ss)w0rd!") + '"', s),
        ("'passwd' => '" + (s := "Summer2024") + "',", s),
        ('\\"pwd\\":\\"' + (s := "a1b2c3d4") + '\\"', s),
        ("mysql --password=" + (s := "Xy12!zw9") + " -e x", s),
        ("password       = " + (s := "a1b2c3d4e5") + "\n", s),
        ("?user=x&password=" + (s := "a1b2c3d4e5") + "&next=1", s),
    ],
    "secret": [
        ("api_key = '" + (s := body(32)) + "'", s),
        ("CLIENT_SECRET=" + (s := body(40)) + "\n", s),
        ("X-Api-Key: " + (s := body(32, HEX)), s),
        ('"accessToken":"' + (s := body(64, URL)) + '"', s),
        ("token := `" + (s := body(24)) + "`", s),
        ("signing-key: " + (s := body(44, ALNUM + "+/") + "="), s),
    ],
}

# Rule -> what looks like it and is not.
NOT_SECRET: dict[str, list[str]] = {
    "cut-token": [
        *("ghp_word…", "sk-learn-contrib…", "task-12345678…", "what ghp_ means…", "eyJ…", "see AKIA…"),
        *("see http://localhost:8080…", "http://h:80/a1…", "a Bearer token…", "the password: migrat…"),
    ],
    "github-token": ["ghp_short", "ghp_" + "_" * 5 + " ", "right_" + body(36), "xghp_" + body(36)],
    "github-fine-grained-token": ["github_pat_token", "github_path_" + body(16)],
    "stripe-key": ["sk_live_mode", "task_live_" + body(24), "is_live_stream"],
    "stripe-webhook-secret": ["whsec_secret", "whsec_" + body(12)],
    "huggingface-token": ["hf_hub_download", "shelf_" + body(34), "hf_transfer"],
    "npm-token": ["npm_config_registry", "npm_lifecycle_event", "npm_" + body(35), "npm_" + body(37)],
    "digitalocean-token": ["dop_v1_" + body(63, HEX)],
    "linear-key": ["lin_api_key", "colin_api_" + body(40)],
    "notion-token": ["ntn_database"],
    "notion-secret": ["secret_" + body(20), "secret_key_base", "my_secret_" + body(43)],
    "supabase-token": ["sbp_" + body(39, HEX)],
    "shopify-token": ["shpat_" + body(31, HEX), "shpxx_" + body(32, HEX)],
    "grafana-token": ["glsa_" + body(32)],
    "groq-key": ["gsk_" + body(20), "task_" + body(52)],
    "replicate-token": ["r8_" + body(20), "arr8_" + body(37)],
    "docker-token": ["dckr_pat_example"],
    "private-key": [
        "-----BEGIN CERTIFICATE-----\n" + body(64) + "\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\n" + body(64) + "\n-----END PUBLIC KEY-----",
        "a file that starts with -----BEGIN PRIVATE " + "KEY----- is a private key, keep it",
        "---------------------------",
    ],
    "anthropic-key": ["sk-ant-api03-...", "sk-ant-", "task-ant-api03-" + body(40)],
    "openai-key": [
        "sk-learn",
        "sk-proj-",
        "task-" + body(48),
        "disk-usage-" + body(20),
        "sk-some-kebab-name-in-css-here",
    ],
    "gitlab-token": ["glpat-xyz", "glpat-"],
    "slack-token": ["xoxb-...", "xox-" + body(30)],
    "pypi-token": ["pypi-publish", "pypi-AgE"],
    "mailgun-key": ["key-" + body(31, HEX), "primary-key-column", "monkey-" + body(32, HEX)],
    "xai-key": ["xai-grok-4-fast"],
    "perplexity-key": ["pplx-70b-online"],
    "jwt": ["eyJhbGciOiJIUzI1NiJ9", "keyJournal.eyJournal.x"],
    "sendgrid-key": ["SG.core", "MSG." + body(22) + "." + body(43)],
    "google-oauth-token": ["ya29.", "maya29." + body(30)],
    "vault-token": ["hvs.read", "hvs.client.auth.token"],
    "doppler-token": ["dp.pt.x", "udp.pt." + body(43)],
    "slack-webhook": ["https://hooks.slack.com/services/", "see hooks.slack.com for more"],
    "discord-webhook": ["https://discord.com/api/webhooks/ID/TOKEN"],
    "discord-token": ["NotificationServiceManager1.create.some_quite_long_method_name_here"],
    "aws-access-key-id": ["AKIA", "AKIA" + body(15, UPPER), "AKIA" + body(17, UPPER), "XAKIA" + body(16, UPPER)],
    "google-api-key": ["AIza", "AIza" + body(34, URL), "MAIza" + body(35, URL)],
    "atlassian-token": ["ATATT3xFfGF0"],
    "age-secret-key": ["AGE-SECRET-KEY-1", "age1" + body(58, HEX)],
    "twilio-key": ["SK" + body(31, HEX), "SK" + body(33, HEX), "TASK" + body(32, HEX), "SKILL"],
    "databricks-token": ["dapi" + body(30, HEX), "mydapi" + body(32, HEX)],
    "bearer-token": [
        "Bearer $TOKEN",
        "Bearer <token>",
        "Bearer authentication is described",
        "Bearer ${process.env.T}",
    ],
    "telegram-token": ["12:34:56", "123456789:AA", "2024-01-02:AA" + body(33)],
    "url-password": [
        "https://example.com:8080/a@b",
        "postgres://user:password@localhost/db",
        "postgres://user:${PASSWORD}@localhost/db",
        "postgres://user:<password>@localhost",
        "postgres://%s:%s@%s/%s",
        "ssh://git@github.com:22/x",
        "see http://a.b and mail me: x@y.z",
    ],
    "authorization-header": [
        "Authorization: Bearer $TOKEN",
        "Authorization: <type> <credentials>",
        "authorization: none",
    ],
    "aws-secret-key": [
        "aws_secret_access_key = os.environ['X']",
        "AWS_SECRET_ACCESS_KEY=${KEY}",
        "AWS_SECRET_ACCESS_KEY=",
    ],
    "azure-key": ["AccountKey=<key>;", "accountKey = account.key"],
    "password": [
        "password=os.environ['DB_PASSWORD_2']",
        "password = getpass.getpass('Password 1: ')",
        "password: str | None = None",
        "password=$DB_PASS1",
        "password: ${{ secrets.PASS2 }}",
        "password = config.database.password2",
        "password = user2password",
        "password='your-password-123'",
        "password: ********",
        "password=",
        '{"password": ""}',
        "PWD=/home/user1/project2",
        '"cwd":"/home/user1/project2"',
        "the password: at least 8 characters",
    ],
    "secret": [
        "token = get_token()",
        "token = tokens[i1]",
        "token = self.tokenizer_v2.next_token3",
        "secret = sha256_hex_digest_of_v2_payload",
        "access_key: S3AccessKeyV2Config2",
        "max_tokens: 4096",
        "input_token: 123456789012345678901",
        "next_page_token=CAAQAA1b2c3d4e5f6g7h8",
        '"nextToken": "CAAQAA1b2c3d4e5f6g7h8"',
        "api_key = 'your-api-key-goes-here-1-2'",
        "api_key=<API_KEY>",
        "API_KEY: process.env.API_KEY_V2_NAME3",
        "token: see RFC 6750 section 2.1",
        "private_key: /etc/ssl/private/server1.key2.pem",
        "primary_key = a1b2c3d4e5f6a7b8c9d0e1f2",
    ],
}

CONTEXTS = (
    "{}",
    "see {} there",
    '"{}"',
    "export X={}\n",
    "a\\n{}\\nb",
    "({}).",
    "https://h/?q={}&r=1",
    "/{},",
    "{}\n{}",
)

EVERY_TOKEN = [token for tokens in TOKENS.values() for token in tokens]


# Rule -> (what stands before a secret at which a title or an excerpt was cut, the part that is left of it).
CUT: dict[str, list[tuple[str, str]]] = {
    "url-password": [("postgres://app:", "s3cr3t-Pa"), ("https://:", "hun")],
    "bearer-token": [("curl -H 'Bearer ", "a1B2c3")],
    "authorization-header": [("Authorization: Basic ", "dXNlcjpw")],
    "telegram-token": [("the bot is ", "123456789" + ":AAb1")],
    "password": [('DB_PASSWORD="', "hunter2!x"), ('{\\"passwd\\": \\"', "a1b")],
    "secret": [('API_KEY = "', "z6sF"), ("aws_secret_access_key=", "gZb22FFnE"), ('"token": "', "a1b2")],
    "private-key": [("", "-----BEGIN RSA PRIVATE " + "KEY----- MIIEpAIB"), ("", pem()[:92] + "\nMIIEp")],
}


class TestRules:
    """Each rule finds its secrets wherever they stand, and nothing that only resembles them."""

    def test_every_rule_has_vectors_of_both_kinds(self) -> None:
        assert set(TOKENS) | set(IN_CONTEXT) == set(RULES)
        assert set(NOT_SECRET) == set(RULES)
        assert len(set(RULES)) == len(RULES)

    @pytest.mark.parametrize("rule", TOKENS)
    def test_a_token_is_replaced_in_any_context(self, rule: str) -> None:
        for token in TOKENS[rule]:
            for context in CONTEXTS:
                assert redact(context.replace("{}", token)) == context.replace("{}", f"[redacted:{rule}]")

    @pytest.mark.parametrize("rule", IN_CONTEXT)
    def test_only_the_secret_part_is_replaced(self, rule: str) -> None:
        for text, secret in IN_CONTEXT[rule]:
            assert redact(text) == text.replace(secret, f"[redacted:{rule}]")
            assert redact(f"before\n{text}") == f"before\n{text.replace(secret, f'[redacted:{rule}]')}"

    @pytest.mark.parametrize("rule", CUT)
    def test_what_is_left_of_a_secret_is_replaced(self, rule: str) -> None:
        """Titles and excerpts are cut before they are redacted."""
        for before, left in CUT[rule]:
            for context in ("{}…", "fix {}…", "fix {}…\nand {}…"):
                text = context.replace("{}", before + left)
                assert redact(text) == context.replace("{}", f"{before}[redacted:{rule}]")

    @pytest.mark.parametrize("rule", NOT_SECRET)
    def test_what_only_looks_like_it_stays(self, rule: str) -> None:
        for text in NOT_SECRET[rule]:
            for context in ("{}", "see {} there", '"{}"'):
                innocent = context.replace("{}", text)
                assert redact(innocent) == innocent

    def test_an_access_key_id_in_lower_case(self) -> None:
        """Names of capsules are compared, and shown, in lower case."""
        for key in TOKENS["aws-access-key-id"][:1]:
            assert redact(f"plan {key.lower()} b") == "plan [redacted:aws-access-key-id] b"
            assert redact(f"x{key.lower()}") == f"x{key.lower()}"

    def test_service_account_files_lose_their_key(self) -> None:
        """A Google service account is JSON with the PEM block in one escaped line."""
        block = pem().replace("\n", "\\n")
        text = '{"type": "service_account", "private_key": "' + block + '\\n", "client_email": "x@y.z"}'
        assert redact(text) == text.replace(block, "[redacted:private-key]")

    def test_ordinary_text_is_returned_as_it_is(self) -> None:
        text = (
            "def get_user_name(user_id: int) -> str:\n    return f'{user_id}: {commit[:7]}'  # see src/auth/token.py\n"
            * 50
        )
        assert redact(text) is text

    def test_git_hashes_uuids_and_tool_ids_stay(self) -> None:
        text = f"commit {body(40, HEX)} toolu_01{body(22)} msg_01{body(22)} 6f0c1e9a-1b2c-4d5e-8f90-a1b2c3d4e5f6"
        assert redact(text) == text


FRAGMENTS = [
    *(token for tokens in TOKENS.values() for token in tokens[:1]),
    *(text for cases in IN_CONTEXT.values() for text, _ in cases[:2]),
    *("", " ", "\n", "\\n", '"', "'", "=", ":", "-", "_", ".", "/", "@", "://", "x", "9", "password="),
    *("token: ", "Bearer ", "…"),
    *("[redacted:jwt]", "-----BEGIN PRIVATE " + "KEY-----", "-----END PRIVATE " + "KEY-----", "eyJ", "sk-", "ghp_"),
]


class TestRedactTwice:
    """Redacting what is redacted changes nothing, however secrets are glued together."""

    def test_a_key_within_the_marks_of_another(self) -> None:
        begin, end = (f"-----{word} PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
        once = redact(f"{begin}{begin}\n{'7dU/0q9ezLsUUugk3mpUsGA9K82IqjeN65/imT98' * 4}\n{end}{end}")

        assert once == f"{begin}[redacted:private-key]{end}"
        assert redact(once) == once

    @given(st.lists(st.sampled_from(FRAGMENTS), max_size=8))
    def test_fragments(self, fragments: list[str]) -> None:
        once = redact("".join(fragments))
        assert redact(once) == once

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        assert redact(redact(text)) == redact(text)

    def test_neighbours(self) -> None:
        for token in EVERY_TOKEN:
            for other in EVERY_TOKEN:
                once = redact(token + other)
                assert redact(once) == once


ATTACKS = [
    *(token[:width] for tokens in TOKENS.values() for token in tokens[:1] for width in (12,)),
    *("a", "A", "0", "-", "_", ".", "=", ":", "/", "@", "\\", '"', " ", "\n", "a-", "a.", "a1", "eyJ-", "eyJ."),
    *(".eyJ", "://", "sk-a.", "sk-1.", "pwd=1", "…", "a…", "a:…"),
    *("://a:", "://:a", "en=", "en=a1", "en:a1", "token=", "token='", "token=a1b2c3d4", 'password="a1b2c3d4" '),
    *("KEY=   ",),
    *("-----BEGIN PRIVATE " + "KEY-----", "-----BEGIN A B C D ", "-----BEGIN PRIVATE " + "KEY-----" + "a" * 50),
    *("-----",),
    *("Bearer ", "Bearer a", "Authorization: Bearer ", "hooks.slack.com/services/"),
    *("discord.com/api/webhooks/", "MDAw"),
    *("MDAwMDAwMDAwMDAwMDAwMDAw.", "\\neyJ", "\\nsk-", "dp.pt.", "dp.pt.aa.", "SG.aaaaaaaaaaaaaaaaaaaaaa."),
    *("123456789:AA",),
    *("\x1b", "\x1b[", "\x1b]", "\x1b]8;;", "\x1bP", "\x9b", "\x9d", "\x9c\x9d", "\u200d", "\ufe0f", "a\u200b"),
    *("\r", "\ud800"),
]


class TestTime:
    """Time is bounded: a text made to hurt takes a fraction of a second."""

    def test_repeated(self) -> None:
        for attack, end in product(dict.fromkeys(ATTACKS), ("", "…")):
            text = (attack * (200_000 // len(attack) + 1))[:200_000] + end
            started = time.process_time()
            egress(text)
            assert time.process_time() - started < 1, ascii(attack)


class TestClean:
    """Nothing that acts unseen on a terminal or a reader comes through; everything that is spelling does."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("\x1b[31mred\x1b[0m and \x1b[1;38;5;200mbold\x1b[m", "red and bold"),
            ("\x1b[2J\x1b[H\x1b[?25lhidden cursor", "hidden cursor"),
            ("\x1b]0;a title\x07text", "text"),
            ("\x1b]8;;https://evil.example\x1b\\label\x1b]8;;\x1b\\", "label"),
            ("\x1b]8;id=1;https://evil.example\x07label\x1b]8;;\x07", "label"),
            ("\x1bPq#0\x1b\\sixel", "sixel"),
            ("\x1b(Bcharset\x1b7saved\x1bc", "charsetsaved"),
            ("\x9b31mC1\x9d0;t\x9c", "C1"),
            ("torn \x1b[", "torn ["),
            ("torn \x1b]8;;http://x", "torn ]8;;http://x"),
            ("a\r\nb\rc\n\r\nd", "a\nb\nc\n\nd"),
            ("nul\x00bel\x07bs\x08vt\x0bff\x0cdel\x7fnel\x85", "nulbelbsvtffdelnel"),
            ("tab\tand\nnewline", "tab\tand\nnewline"),
            ("\u202egnp.exe\u202c \u2066iso\u2069 \u200elrm\u200frlm \u061calm", "gnp.exe iso lrmrlm alm"),
            ("zero\u200bwidth \ufeffbom \u2060word \u2061\u2064 \u180emvs so\xadft", "zerowidth bom word  mvs soft"),
            ("tags \U000e0041\U000e0042\U000e007f end", "tags  end"),
            ("\ufff9base\ufffanote\ufffb", "basenote"),
            ("lone \ud800 surrogate", "lone \ufffd surrogate"),
            ("pass\u200dword tok\u200cen", "password token"),
            ("\u200d edge \u200d", " edge "),
            ("hidden\ufe0f\ufe01\U000e0120\U000e0121 bytes", "hidden\ufe0f bytes"),
        ],
    )
    def test_stripped(self, text: str, expected: str) -> None:
        assert clean(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "plain ASCII, with\ttabs\nand newlines",
            "Grüße, naïve façade, Ελληνικά, Кириллица, עברית, العربية, 日本語, 한국어",
            "می\u200cخواهم",  # Persian needs the non-joiner
            "क्\u200dष",  # Devanagari half form: a joiner after the virama
            "👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 👩🏽\u200d💻",
            "no\xa0break, ideographic\u3000space, em\u2014dash \u2028",
            "→ ✓ ┌─┐ ░▒▓ 😀",
        ],
    )
    def test_kept(self, text: str) -> None:
        assert clean(text) == text

    def test_clean_text_is_not_copied(self) -> None:
        text = "nothing to do here\n" * 1000
        assert clean(text) is text
        text = "nothing to do hier, schön\n" * 1000
        assert clean(text) is text

    @given(
        st.text(
            st.characters(categories=("Cc", "Cf", "Cs", "Mn", "So", "Lo", "Ll", "Zs", "Zl"))
            | st.sampled_from("\x1b[]m;\x07")
        )
    )
    def test_any_text(self, text: str) -> None:
        """A cleaned text prints, encodes, and is clean."""
        once = clean(text)
        assert clean(once) == once
        once.encode()
        allowed = {"\n", "\t", "\u200c", "\u200d"}
        assert not [c for c in once if unicodedata.category(c) == "Cc" and c not in allowed]
        assert not set(once) & set("\u200b\u200e\u200f\u202e\u2066\ufeff\xad\u061c\U000e0041")


class TestEgress:
    """Texts of the archive are always cleaned, and redacted unless that is off."""

    def test_modes(self) -> None:
        token = TOKENS["github-token"][0]
        text = f"\x1b[1m{token}\x1b[0m"
        assert egress(text) == "[redacted:github-token]"
        assert egress(text, "egress") == egress(text, "ingest") == "[redacted:github-token]"
        assert egress(text, "off") == token

    def test_a_secret_broken_by_unseen_characters_is_found(self) -> None:
        token = TOKENS["github-token"][0]
        assert egress(f"{token[:9]}\u200b{token[9:20]}\x1b[0m{token[20:]}") == "[redacted:github-token]"

    SAMPLES = (
        *(token for tokens in TOKENS.values() for token in tokens),
        *(text for pairs in IN_CONTEXT.values() for text, _ in pairs),
        *(text for texts in NOT_SECRET.values() for text in texts),
        *("", "plain words", "schön", "\x1b[1m", "\u200b", "\x1b]0;", "password=", "token:", " = ", "\n"),
        *("-----BEGIN PRIVATE",),
    )

    @given(st.lists(st.lists(st.sampled_from(SAMPLES), max_size=3).map("".join), max_size=12))
    def test_many_texts_at_once(self, texts: list[str]) -> None:
        """Each is redacted by itself: the end of one text does not join the beginning of the next."""
        assert egress(texts) == [egress(text) for text in texts]
        assert egress(texts, "off") == [egress(text, "off") for text in texts]

    def test_every_secret_among_many_texts(self) -> None:
        texts = [part for sample in self.SAMPLES for part in (sample, "between")]
        assert egress(texts) == [egress(text) for text in texts]

    def test_values(self) -> None:
        """Strings and keys at any depth; other values and the argument itself stay as they are."""
        token = TOKENS["npm-token"][0]
        value = {"a\x00": [1, 2.5, None, True, {"b": f"\x1b[1m{token}"}], token: ("x\u200b", "y")}
        before = repr(value)
        assert egress(value) == {
            "a": [1, 2.5, None, True, {"b": "[redacted:npm-token]"}],
            "[redacted:npm-token]": ["x", "y"],
        }
        assert repr(value) == before
        assert egress("\x07x") == "x"
        assert egress(7) == 7
        assert egress(value, "off")["a"][4] == {"b": token}

    def test_a_field_is_an_assignment(self) -> None:
        secret = body(32)
        fields = {
            "api_key": secret,
            "dbPassword": "correcthorse9",
            "password": "see page 4",
            "note": secret,
            "token": 12,
        }
        assert egress(fields) == {
            "api_key": "[redacted:secret]",
            "dbPassword": "[redacted:password]",
            "password": "see page 4",
            "note": secret,
            "token": 12,
        }
        assert egress(egress(fields)) == egress(fields)
        assert egress(fields, "off") == fields

    def test_depth_is_no_limit(self) -> None:
        value: object = "x\x00"
        for _ in range(50_000):
            value = [value]
        result = egress(value)
        for _ in range(50_000):
            (result,) = result
        assert result == "x"


class TestDocumentation:
    """Every rule is in the manual."""

    def test_rules_are_listed(self) -> None:
        manual = (Path(__file__).parent.parent / "docs" / "security.md").read_text("utf-8")
        assert [rule for rule in RULES if f"`{rule}`" not in manual] == []
