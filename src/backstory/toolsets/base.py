"""The parts of a tool: its declaration, and the frame it answers through.

A tool is declared once and served by MCP, `backstory call`, HTTP and the library. `Reply.of` makes every answer, and
passes it through egress.

Agents read the schemas of all listed tools in every prompt, so they are flat and say nothing twice.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from ..egress import Mode

Arguments = Mapping[str, Any]
Schema = Callable[[], dict[str, Any]]
"""Makes a JSON Schema, which is not to be changed: it is made once."""
T = TypeVar("T")

_log = logging.getLogger(__name__)

MAX_ECHO_BYTES = 3072
"""The limit for the request that an error repeats; with its message the error stays within 4 KiB."""
_MAX_ECHO_DEPTH = 16
_MAX_SECRET_CHARS = 4096
NUMBER_AS_STRING = "a number sent as a string is not converted, send it without quotes"


class Released(Struct, frozen=True):
    """An answer that leaves as it is: it passed egress before, because its excerpts are cut from redacted text, or the
    caller asked for it as it was stored."""

    answer: Any


class Reply(Struct, frozen=True, dict=True):
    """A tool's answer: the object, as JSON without white space and as JSON text. `is_error` is the MCP flag."""

    json: msgspec.Raw
    text: str
    is_error: bool = False

    @cached_property
    def data(self) -> dict[str, Any]:
        """The object. A server that passes the JSON on does not need it."""
        decoded: dict[str, Any] = msgspec.json.decode(self.json)
        return decoded

    @classmethod
    def of(cls, answer: Any, *, mode: Mode = "egress", is_error: bool = False, indent: int = 0) -> Reply:
        """The reply with this answer, which passes egress here unless it is `Released`."""
        if isinstance(answer, Released):
            data = answer.answer
        else:
            from ..egress import egress  # imported late: many commands import this module and answer nothing

            data = egress(msgspec.to_builtins(answer, str_keys=True), mode)
        encoded = msgspec.json.encode(data)
        text = msgspec.json.format(encoded, indent=indent) if indent else encoded
        return cls(msgspec.Raw(encoded), text.decode(), is_error)


class Tool(Struct, frozen=True, kw_only=True, dict=True):
    """One tool of a contract. The handler takes undecoded arguments and never raises: errors are replies.

    `input` and `output` make the schemas when they are first asked for: a call needs none.

    `structured_errors`: flagged errors fit the output schema too, so MCP sends them as structured content. Where they
    do not, clients that check answers against the schema would refuse them; there an error is text only.

    Agents carry the definitions of all listed tools in every prompt. `offer` is the least offer that lists the tool:
    the `default`, its toolset by name (`named`), or `all` tools of the toolset. `compact_output` is listed in the place
    of the output schema unless the settings select full schemas; None lists none.
    """

    name: str
    description: str
    input: Schema
    output: Schema | None = None
    handler: Callable[[Arguments], Reply]
    structured_errors: bool = False
    compact_output: dict[str, Any] | None = None
    offer: Literal["default", "named", "all"] = "default"
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    aliases: tuple[str, ...] = ()

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return self.input()

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        return self.output() if self.output else None


class Toolset(Struct, frozen=True, kw_only=True):
    """The tools of one contract, and the instructions for agents on when to use them."""

    name: str
    tools: tuple[Tool, ...]
    instructions: str = ""


class Failure(Struct, frozen=True):
    """A contract's error object for a call that failed. `is_error` is the MCP flag."""

    body: Any
    is_error: bool = True
    excerpted: bool = False
    """Each part of the body that repeats the request is within a limit of its own."""


class Frame(Struct, frozen=True, kw_only=True):
    """The way from undecoded arguments to a reply, the same for every tool of a contract.

    Arguments are decoded, the action is called, its answer passes egress, and an exception becomes the contract's error
    object. Error objects repeat at most a few KiB of the request, and pass egress too.
    """

    refuse: Callable[[Exception], Failure | None]
    """The error object for an exception the contract knows; None for one it does not know."""
    unexpected: Callable[[str], Failure]
    """The error object for any other exception, given a message for the caller. Details go to the log."""
    mode: Mode = "egress"
    """The `redact` setting."""
    indent: int = 0

    def handler(self, name: str, takes: type[T], action: Callable[[T], Any]) -> Callable[[Arguments], Reply]:
        """The handler of a tool whose arguments decode to `takes`."""
        return self.raw_handler(name, lambda arguments: action(decode_arguments(takes, arguments)))

    def raw_handler(self, name: str, action: Callable[[Arguments], Any]) -> Callable[[Arguments], Reply]:
        """The handler of a tool that reads its arguments itself."""

        def handle(arguments: Arguments) -> Reply:
            try:
                return Reply.of(action(arguments), mode=self.mode, indent=self.indent)
            except Exception as error:
                return self._error(name, error)

        return handle

    def _error(self, name: str, error: Exception) -> Reply:
        refused = self.refuse(error)
        if refused is None:
            _log.warning("%s: %s: %s", name, type(error).__name__, error, exc_info=_log.isEnabledFor(logging.DEBUG))
            refused = self.unexpected(f"{name} failed unexpectedly; `backstory doctor` may tell why")
        body = refused.body
        if not refused.excerpted:
            body = excerpt(msgspec.to_builtins(body, enc_hook=repr), mode=self.mode)
        return Reply.of(body, mode=self.mode, is_error=refused.is_error, indent=self.indent)


# The time of receipt


_received: ContextVar[float] = ContextVar("received")


@contextmanager
def received(moment: float) -> Iterator[None]:
    """A context in which tools measure their time from `moment` (monotonic clock), when the request came in."""
    token = _received.set(moment)
    try:
        yield
    finally:
        _received.reset(token)


def received_at() -> float:
    """The moment the current request came in; now, if no face has set one."""
    return _received.get(time.monotonic())


# Arguments


class BadArgument(ValueError):
    """An argument that does not fit: the field, the reason, and for a wrong choice `validValues` and `nearest`."""

    def __init__(self, field: str | None, message: str, **choice: Any) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.choice = choice


def decode_arguments(kind: type[T], arguments: Arguments) -> T:
    """Typed arguments, strictly: nothing is coerced, unknown fields are refused (by the Struct's own setting)."""
    if not isinstance(arguments, Mapping):
        raise BadArgument(None, "arguments must be an object")
    for field, value in arguments.items():
        # A value that JSON cannot hold, such as half a surrogate pair, could neither be stored nor reported.
        try:
            msgspec.json.encode((field, value))
        except (UnicodeError, RecursionError, TypeError):
            named = field if isinstance(field, str) and field.isprintable() else None
            raise BadArgument(named, f"{named or 'arguments'}: not valid Unicode text or JSON") from None
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise _suggesting(_bad_argument(str(error)), kind) from None


def _suggesting(error: BadArgument, kind: type) -> BadArgument:
    """The error, for an unknown field with the name of the most similar known field, for a wrong choice with the
    choices."""
    if error.field is None:
        return error
    from difflib import get_close_matches

    _, wrong_choice, given = error.message.partition(f"{error.field}: invalid enum value ")
    if wrong_choice:
        choices = _choices(kind, error.field)
        said = f"{error.field} must be one of {', '.join(choices)}"
        near = get_close_matches(given[1:-1].lower(), choices, 1, 0.5)
        if not near:
            return BadArgument(error.field, said, validValues=choices)
        return BadArgument(error.field, f"{said} (did you mean {near[0]}?)", validValues=choices, nearest=near[0])
    if not error.message.startswith("unknown field: "):
        return error
    known = list(getattr(kind, "__struct_fields__", ()))
    near = [field for field in known if error.field in field.split("_")] or get_close_matches(error.field, known, 1)
    return BadArgument(error.field, f"{error.message} (did you mean {near[0]}?)") if len(near) == 1 else error


def _choices(kind: type, path: str) -> list[str]:
    """The values of the choice at a path of msgspec, e.g. `filters[0].operator`."""
    from msgspec import inspect

    types = _options(inspect.type_info(kind))
    for step in path.replace("[", ".[").split("."):
        if step.startswith("["):
            inner = [getattr(each, "item_type", None) or getattr(each, "value_type", None) for each in types]
        else:
            inner = [field.type for each in types for field in getattr(each, "fields", ()) if field.encode_name == step]
        types = [option for each in inner for option in _options(each)]
    return [value for each in types for value in getattr(each, "values", ())]


def _options(node: Any) -> list[Any]:
    """The types of a union, or the one type."""
    return list(getattr(node, "types", (node,)))


def _bad_argument(text: str) -> BadArgument:
    """The error for a message of msgspec, e.g. ``Expected `int`, got `str` - at `$.n_hits` ``."""
    message, _, where = text.partition(" - at `$")
    path = where.removesuffix("`").removeprefix(".")
    if message.startswith("Object contains unknown field"):
        name = message.split("`")[1]
        field = f"{path}.{name}" if path else name
        return BadArgument(field, f"unknown field: {field}")
    if message.startswith("Object missing required field"):
        name = message.split("`")[1]
        field = f"{path}.{name}" if path else name
        return BadArgument(field, f"{field} is required")
    said = f"{path or 'arguments'}: {message[0].lower()}{message[1:].replace('`', '')}"
    if said.endswith("got str") and ("expected int" in said or "expected float" in said):
        said += "; " + NUMBER_AS_STRING
    return BadArgument(path or None, said)


# Echoes


def excerpt(value: Any, limit: int = MAX_ECHO_BYTES, mode: Mode = "egress") -> Any:
    """The value within `limit` bytes of JSON: long texts and lists are cut, deep values left out.

    Texts are redacted before they are cut: half a secret would not be recognised as one.
    """
    cap = limit
    while cap:
        try:
            short = _shorten(value, cap, _MAX_ECHO_DEPTH, [limit], mode)
            if len(msgspec.json.encode(short)) <= limit:
                return short
        except _TooMuch:
            pass
        cap //= 2
    return {} if isinstance(value, Mapping) else "…"


class _TooMuch(Exception):
    """More values than the limit has bytes."""


def _shorten(value: Any, cap: int, depth: int, room: list[int], mode: Mode) -> Any:
    """Texts of at most `cap` characters, containers of at most `cap` items, `depth` containers within one another."""
    room[0] -= 1
    if room[0] < 0:
        raise _TooMuch
    if isinstance(value, str):
        return cut_text(value, cap, mode).encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() < 64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, Mapping):
        pairs = islice(value.items(), cap)
        return {
            str(_shorten(key, cap, 0, room, mode)): _shorten(item, cap, depth - 1, room, mode) for key, item in pairs
        }
    if isinstance(value, list | tuple):
        return [_shorten(item, cap, depth - 1, room, mode) for item in value[:cap]]
    return f"<{type(value).__name__}>"


def cut_text(text: str, cap: int, mode: Mode = "egress") -> str:
    """The text up to `cap` characters, redacted before it is cut."""
    if len(text) <= cap:
        return text
    from ..egress import egress

    return egress(text[: cap + _MAX_SECRET_CHARS], mode)[:cap] + "…"


# Schemas


def input_schema(
    kind: type, required: tuple[str, ...] | None = None, *, nullable: bool = True, null_defaults: bool = False
) -> Schema:
    """The arguments of a tool as one flat object: some clients do not follow references. `required` replaces what the
    type says. Where null says no more than leaving a field out, the schema need not have it, as a type (`nullable`) or
    as a default (`null_defaults`)."""
    return partial(_input_schema, kind, required, nullable, null_defaults)


def output_schema(answer: Any, error: Any = None) -> Schema:
    """The answer, or an error where errors are structured too. Clients require an object at the top level, so the two
    are alternatives of one."""
    return partial(_output_schema, answer, error)


@cache
def _input_schema(kind: type, required: tuple[str, ...] | None, nullable: bool, null_defaults: bool) -> dict[str, Any]:
    schema = _resolved(msgspec.json.schema(kind), nullable, null_defaults)
    return schema if required is None else schema | {"required": list(required)}


@cache
def _output_schema(answer: Any, error: Any) -> dict[str, Any]:
    if error is None:
        return _resolved(msgspec.json.schema(answer), nullable=True, null_defaults=False)
    roots, definitions = msgspec.json.schema_components([answer, error], ref_template="#/$defs/{name}")
    return {"type": "object", "anyOf": list(roots), "$defs": definitions}


def _resolved(schema: dict[str, Any], nullable: bool, null_defaults: bool) -> dict[str, Any]:
    """The schema without references, titles and empty defaults: agents read all of it in every prompt."""
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(part) for part in node]
        if not isinstance(node, dict):
            return node
        if options := node.get("anyOf"):
            node = _merged(node, options, nullable)
        if reference := node.get("$ref"):
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return resolve(definitions[reference.rpartition("/")[2]] | beside)
        return {key: resolve(value) for key, value in node.items() if not superfluous(key, value)}

    def superfluous(key: str, value: Any) -> bool:
        if key == "title":  # of a type; a field of that name has a schema
            return not isinstance(value, dict)
        return key == "default" and value is None and not null_defaults

    return {key: value for key, value in resolve(schema).items() if key != "description"}


def _merged(node: dict[str, Any], options: list[dict[str, Any]], nullable: bool) -> dict[str, Any]:
    """An optional value as one schema; keywords of the field override those of its type."""
    plain = [option for option in options if option != {"type": "null"}]
    if len(plain) != 1 or len(plain) == len(options) or (nullable and "type" not in plain[0]):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    kind = {"type": [plain[0]["type"], "null"]} if nullable else {}
    return {**plain[0], **kind, **rest}
