"""The pages: their templates, and the filters of these: times, amounts, Markdown and code as HTML.

Everything that is not made by a filter of this module is escaped by the template engine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, urlsplit

import jinja2
from markupsafe import Markup, escape

from ...model import parse_time, rfc3339
from ...toolcalls import main_argument
from ..words import ago, home_path, plural

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TEMPLATES = Path(__file__).with_name("templates")
# Longer code is shown as it is: a lexer may take seconds for a minified file.
_HIGHLIGHTED_CHARS = 40_000
_MARKDOWN_CHARS = 100_000
_KEPT_CHARS = 10_000
_PLAIN_CHARS = 1_000
# Emphasis, lines that fence code, code and headings; a mark that stands alone, as in `**options`, is part of the text.
_MARKS = re.compile(
    r"(?<![\w*(])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w*])|(?m:^ *```[^`\n]*(?:\n|$))"
    r"|(?<!`)(`+)(?!`)(.+?)(?<!`)\2(?!`)|(?:^#|(?<=\s)##)#{0,5} (?=\S)"
)
# The ends of addresses of a capsule that are not its page.
_OTHER_ADDRESSES = (".json", ".md", "/edit")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def make_environment(**names: Any) -> jinja2.Environment:
    """The templates of the pages; `names` are known in all of them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(names, address=address, capsule_url=capsule_url)
    filters: dict[str, Callable[..., Any]] = {
        "ago": _ago,
        "argument": lambda value: main_argument(value) or "",
        "bytes": size,
        "clock": partial(_time_tag, form="%H:%M"),
        "code": code,
        "day": partial(_time_tag, form="%Y-%m-%d"),
        "duration": took,
        "home": home_path,
        "markdown": markdown,
        "marked": marked,
        "money": money,
        "number": lambda count: f"{count:,}",
        "only_date": only_date,
        "plain": plain,
        "plural": plural,
        "rfc3339": rfc3339,
        "short_number": short_number,
        "when": _time_tag,
    }
    environment.filters.update(filters)
    return environment


def address(path: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """A path with a query: `address("/", [("q", "words")])`."""
    given = [f"{name}={_quoted(value)}" for name, value in query if value]
    return f"{path}?{'&'.join(given)}" if given else path


# A page has a hundred addresses with the same few values.
_quoted = lru_cache(maxsize=1_024)(quote_plus)


def capsule_url(workspace: str, name: str | None, id: str) -> str:
    """The page of a capsule: by its names, or by its id where it has no name or one that another address has. The id
    needs no workspace: one with dots is left out, because browsers resolve them in every spelling."""
    if _has_dots(workspace):
        return f"/capsules/-/{quote(id)}"
    shown = id if not name or name.endswith(_OTHER_ADDRESSES) or _has_dots(name) else name
    return f"/capsules/{quote(workspace)}/{quote(shown)}"


def _has_dots(path: str) -> bool:
    return not {".", ".."}.isdisjoint(path.split("/"))


# Times and amounts. Times are RFC 3339 texts, as the tools give them, and shown in the time zone of the server.


def _local(text: str) -> datetime:
    return datetime.fromtimestamp((parse_time(text) or 0) / 1000).astimezone()


def _time_tag(text: str, shown: str | None = None, *, form: str = "%Y-%m-%d %H:%M") -> Markup:
    """A time as `2026-09-14 14:02`, or in another form, or as `shown`; a pointer shows all of it."""
    moment = _local(text)
    # Not by Markup.format: a rail has a thousand times, and only `text` is not made here.
    return Markup(
        f'<time datetime="{escape(text)}" title="{moment:%Y-%m-%d %H:%M:%S %Z}">{shown or format(moment, form)}</time>'
    )


def _ago(text: str) -> Markup:
    return _time_tag(text, ago(parse_time(text) or 0, int(time.time() * 1000)))


def only_date(text: str) -> str:
    """A date as a field for dates takes it; nothing for a time in other words, such as `7d`."""
    return text if _DATE.fullmatch(text) else ""


def took(ms: float) -> str:
    """`340 ms`, `2.1 s`, `16 min 4 s`, `3 h 20 min`, `2 d 4 h`; `took` in waterfall.js is the same."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
    seconds = round(ms / 1000)
    units = ((seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s"))
    largest = next(place for place, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[largest : largest + 2] if count)


def short_number(count: int) -> str:
    """`950`, `12.3k`, `4.1M`"""
    for limit, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)


def size(count: int) -> str:
    """`9.1 KB`, `32.3 MB`, `1.4 GB`"""
    for limit, unit in ((1_000_000_000, "GB"), (1_000_000, "MB")):
        if count >= limit:
            return f"{count / limit:,.1f} {unit}"
    return f"{count / 1000:.1f} KB"


def money(dollars: float) -> str:
    """`$0.42`, `$1,204`, `<$0.01`"""
    if 0 < dollars < 0.005:
        return "<$0.01"
    return f"${dollars:,.2f}" if dollars < 1000 else f"${dollars:,.0f}"


# Texts


def marked(text: str, places: Iterable[Sequence[int]]) -> Markup:
    """A text with its matches in `<mark>`; places are (start, end), in order."""
    parts, at = [], 0
    for start, end in places:
        parts.append(f"{escape(text[at:start])}<mark>{escape(text[start:end])}</mark>")
        at = end
    return Markup("".join([*parts, escape(text[at:])]))


def plain(text: str) -> str:
    """A title or a beginning of a text without the marks of Markdown."""
    # A mark without its end is looked for up to the end of the text, again for each: longer texts are not titles.
    return _MARKS.sub(lambda found: found[1] or found[3] or "", text[:_PLAIN_CHARS]) + text[_PLAIN_CHARS:]


def markdown(text: str) -> Markup:
    """Markdown of a transcript: HTML in it is shown as text, links lead to the web or nowhere, nothing is loaded."""
    if len(text) > _MARKDOWN_CHARS:
        return Markup('<pre class="plain" tabindex="0">{}</pre>').format(text)
    return _rendered(text) if len(text) <= _KEPT_CHARS else Markup(_markdown().render(text))


@lru_cache(maxsize=512)  # a person goes back and forth between the same pages
def _rendered(text: str) -> Markup:
    return Markup(_markdown().render(text))


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.common.utils import escapeHtml
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

    def picture(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        # A picture on another server would be a request to it.
        token = tokens[index]
        label = token.content or "image"
        return f'<span class="picture">{escapeHtml(label)} ({escapeHtml(str(token.attrGet("src") or ""))})</span>'

    def link(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        tokens[index].attrSet("rel", "noreferrer noopener")
        return self.renderToken(tokens, index, options, env)

    def block(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        # Wide code and tables scroll; the keyboard reaches what has a place in the order of focus.
        rendered: str = getattr(self, tokens[index].type)(tokens, index, options, env)
        return rendered.replace("<pre>", '<pre tabindex="0">', 1)

    def cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        # The policy of the pages forbids the style that the parser sets.
        if style := str(tokens[index].attrs.pop("style", "")):
            tokens[index].attrSet("class", style.removeprefix("text-align:"))
        return self.renderToken(tokens, index, options, env)

    parser = MarkdownIt(
        "commonmark",
        {"html": False, "linkify": False, "highlight": lambda text, language, _: str(_highlighted(text, language))},
    ).enable(["table", "strikethrough"])
    parser.validateLink = _is_safe_link  # type: ignore[method-assign]
    parser.add_render_rule("image", picture)
    parser.add_render_rule("link_open", link)
    for name, rule in (("fence", block), ("code_block", block), ("th_open", cell), ("td_open", cell)):
        parser.add_render_rule(name, rule)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _is_safe_link(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # Without a scheme and a host it would lead to a path of this server.
    return parts.scheme == "mailto" or (parts.scheme in ("http", "https") and bool(parts.netloc))


def code(text: str, name: str = "") -> Markup:
    """A block of code; `name` is a language or the path of a file."""
    return Markup('<pre class="code"><code>{}</code></pre>').format(_highlighted(text, name))


@lru_cache(maxsize=256)
def _highlighted(text: str, name: str) -> Markup:
    lexer = _lexer(name.rpartition("/")[2]) if name and len(text) <= _HIGHLIGHTED_CHARS else None
    if lexer is None:
        return escape(text)
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    return Markup(highlight(text, lexer, HtmlFormatter(nowrap=True)))


@lru_cache(maxsize=256)
def _lexer(name: str) -> Any:
    from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
    from pygments.util import ClassNotFound

    for find in (get_lexer_for_filename, get_lexer_by_name) if "." in name else (get_lexer_by_name,):
        try:
            return find(name, stripnl=False)
        except ClassNotFound:
            continue
    return None
