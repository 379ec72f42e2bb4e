"""The border: no secret and no hostile character leaves by any tool, command or route.

Tools, commands and routes are listed by the program itself: one without a case here fails.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio
import click
import httpx
import pytest
from mcp import Client
from starlette.routing import Route, WebSocketRoute

from backstory.faces.cli.app import program
from backstory.faces.cli.app import run as run_program
from backstory.faces.http.server import create_app
from backstory.library import TOOLSETS, Library
from backstory.model import session_id
from backstory.toolsets.base import Tool
from backstory.toolsets.live.tools import Portal
from tests.capsule_world import capsule_text
from tests.e2e.served import Served, eventually, run
from tests.faces.direct import direct
from tests.faces.http.conftest import FakeLibrary, FakeLive
from tests.transcripts import Transcript

GITHUB = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
AWS = "AK" + "IA" + "Q7W3E5R8T2Y6U4I9"
HOSTILE = f"platypus {GITHUB} \x1b[31mred\x1b[0m \u202ebidi\u202c zero\u200bwidth {AWS}"
SEEN = (GITHUB[:12], AWS[:12], GITHUB[:12].lower(), AWS[:12].lower(), "\x1b", "\u202e", "\u202c", "\u200b")
MARK = "[redacted:"
YEARS = {"start_datetime": "2001-01-01T00:00:00Z", "end_datetime": "2100-01-01T00:00:00Z"}


def check(output: Any) -> None:
    """Look at every text in a value, and into JSON within a text: a text block of MCP is that."""
    if isinstance(output, dict):
        check([*output, *output.values()])
    elif isinstance(output, list):
        for item in output:
            check(item)
    elif isinstance(output, str):
        found = [bad for bad in SEEN if bad in output]
        assert not found, f"{found!r} in {output[:1500]!r}"
        with suppress(ValueError):
            if output.lstrip()[:1] in ("{", "["):
                check(json.loads(output))


class World(NamedTuple):
    """A home that holds secrets and hostile characters wherever a text can stand, and the ids of what is in it."""

    home: Path
    ids: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("border")
    transcript = Transcript("platypus", f"/home/dev/{HOSTILE}")
    transcript.prompt(f"Why? {HOSTILE}").call(
        "Bash", {"command": f"echo {HOSTILE}", HOSTILE: HOSTILE}, f"out {HOSTILE}"
    )
    transcript.call(f"tool {HOSTILE}", {"x": HOSTILE}, HOSTILE, failed=True).answer(f"Because {HOSTILE}")
    for record in transcript.records:
        record["gitBranch"] = HOSTILE
        if record["type"] == "assistant":
            record["message"]["model"] = f"model {HOSTILE}"
    transcript.records.append({"type": "custom-title", "customTitle": f"Title {HOSTILE}", "sessionId": transcript.id})
    path = transcript.write(home)
    # Titles, names and excerpts are cut within the token.
    cut = Transcript("cut", f"/home/dev/{HOSTILE}").prompt(f"{'y' * 100} {GITHUB} platypus").answer("Yes.")
    cut.call("Bash", {"command": f"{'x' * 985} {GITHUB} end"}, f"{'z' * 980} {AWS} {GITHUB} end").answer("No.")
    cut.write(home)
    (path.parent / "broken.jsonl").write_text(f'{{"type": "user", "{HOSTILE}\n', "utf-8")
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        return World(home, {"native": transcript.id, **_fill(library)})


def _fill(library: Library) -> dict[str, Any]:
    portal = Portal(library.home, {"BACKSTORY_HOME": str(library.home)})
    live = portal.call("session::create", {"title": HOSTILE, "metadata": {HOSTILE: HOSTILE}})["session_id"]
    message = {"role": "user", "content": [{"type": "text", "text": HOSTILE}], "timestamp": 1_717_800_000_000}
    entry = portal.call("session::append", {"session_id": live, "message": message})["entry_id"]
    call = {"type": "function_call", "id": HOSTILE, "function_id": HOSTILE, "arguments": {HOSTILE: HOSTILE}}
    made = {"model": HOSTILE, "provider": HOSTILE, "stop_reason": "function_call", "timestamp": 1_717_800_000_001}
    portal.call("session::ensure", {"session_id": f"id {HOSTILE}"})
    for session in (live, f"id {HOSTILE}"):
        answer = {"session_id": session, "message": {"role": "assistant", "content": [call], **made}}
        portal.call("session::append", answer)
    portal.close()
    library.sync()
    hits = library.search("platypus", n_hits=25, event_types=["user_input", "tool_call", "tool_response"])
    opens = [hit["open"] for hit in hits["data"]["results"] if hit["session"]["source"] == "claude-code"]
    text = capsule_text(HOSTILE)
    labels = {"title": HOSTILE, "tags": [HOSTILE], "source": HOSTILE, "run_id": "r", "allow_thin": True}
    capsules = {
        name: library.call("moss.store", {"capsule_text": text, "name": f"{name} {HOSTILE}", **labels})["id"]
        for name in ("capsule", "other", "deleted")
    }
    (library.home / "capsule.md").write_text(text, "utf-8")
    return {
        "live": live,
        "named": session_id(f"live/id {HOSTILE}"),
        "entry": entry,
        "session": opens[0]["session_id"],
        "turn": opens[0]["turn_id"],
        "events": [each["event_id"] for each in opens],
        "trace": library.call("list_traces", {})["traces"][0]["id"],
        **capsules,
        "export": library.call("moss.export", {})["path"],
        "file": str(library.home / "capsule.md"),
    }


@pytest.fixture(scope="module")
def library(world: World) -> Iterator[Library]:
    with Library(world.home / ".backstory", agents_home=world.home, environ={}) as library:
        yield library


def _message(words: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": words}], "timestamp": 1_717_800_000_000}


# Tool -> calls that succeed. Those of SILENT return no text that was stored.
Calls = Callable[[dict[str, Any]], list[dict[str, Any]]]
TOOLS: dict[str, Calls] = {
    "search_sessions": lambda ids: [
        {"query": "platypus"},
        {"query": "platypus", "event_types": ["tool_call", "tool_response"], "n_hits": 25},
    ],
    "open": lambda ids: [{"id": id} for id in (ids["session"], ids["turn"], *ids["events"])],
    "list_sessions": lambda ids: [YEARS],
    "search_conversations": lambda ids: [{"query": "platypus"}],
    "list_conversations": lambda ids: [{}],
    "read_turn": lambda ids: [{"session_id": ids["native"], "turn_number": 0}],
    "read_conversation": lambda ids: [{"session_id": ids["native"]}],
    "moss.store": lambda ids: [{"capsule_text": capsule_text(HOSTILE), "name": HOSTILE, "mode": "replace"}],
    "moss.fetch": lambda ids: [{"id": ids["capsule"]}],
    "moss.fetch_many": lambda ids: [{"items": [{"id": ids["capsule"]}, {"name": f"{HOSTILE} {HOSTILE}"}]}],
    "moss.update": lambda ids: [{"id": ids["capsule"], "title": f"new {HOSTILE}"}],
    "moss.append": lambda ids: [{"id": ids["capsule"], "section": "Decisions", "content": HOSTILE}],
    "moss.latest": lambda ids: [{"include_text": True}],
    "moss.list": lambda ids: [{}],
    "moss.inventory": lambda ids: [{}],
    "moss.search": lambda ids: [{"query": "platypus"}],
    "moss.compose": lambda ids: [{"items": [{"id": ids["capsule"]}]}],
    "moss.history": lambda ids: [{"id": ids["capsule"]}, {"id": ids["capsule"], "version": 1}],
    "moss.export": lambda ids: [{}],
    "moss.import": lambda ids: [{"path": ids["export"]}],
    "moss.delete": lambda ids: [{"id": ids["deleted"]}],
    "moss.restore": lambda ids: [{"id": ids["deleted"]}],
    "moss.purge": lambda ids: [{}],
    "list_traces": lambda ids: [{}],
    "search_traces": lambda ids: [{}],
    "get_trace": lambda ids: [{"traceId": ids["trace"]}],
    "search_spans": lambda ids: [{}, {"traceId": ids["trace"]}],
    "session_list": lambda ids: [{}],
    "session_get": lambda ids: [{"session_id": ids["live"]}],
    "session_messages": lambda ids: [{"session_id": ids["live"]}],
    "session_get_message": lambda ids: [{"session_id": ids["live"], "entry_id": ids["entry"]}],
    "session_append": lambda ids: [{"session_id": ids["live"], "message": _message(HOSTILE)}],
}
# These need one another; all others are called in any order.
IN_ORDER = ("moss.delete", "moss.restore", "moss.purge")
SILENT = {
    "moss.export",
    "moss.import",
    "moss.delete",
    "moss.restore",
    "moss.purge",
    "moss.update",
    "moss.store",
    "moss.append",
    "session_append",
}


def every_tool(library: Library) -> list[Tool]:
    return [tool for name in TOOLSETS for tool in library.toolset(name).tools]


def refused(tool: Tool) -> Iterator[dict[str, Any]]:
    """Requests that an error may repeat: unknown fields, wrong types, long texts that an echo cuts."""
    required = dict.fromkeys(tool.input_schema.get("required", ()), HOSTILE)
    yield {HOSTILE: HOSTILE}
    yield {**required, "nonsense": "x" * 3000 + HOSTILE}
    yield {**required, "nonsense": [HOSTILE] * 200}
    for name in tool.input_schema["properties"]:
        yield {**required, name: {HOSTILE: HOSTILE}}
        yield {**required, name: "x" * 3050 + f" {HOSTILE}" * 30}
        yield {**required, name: HOSTILE}


def without_request(data: Mapping[str, Any]) -> dict[str, Any]:
    """History repeats a request that succeeds as typed: the caller's own words."""
    return dict(data) if "error" in data else {name: value for name, value in data.items() if name != "request"}


class TestTools:
    def test_every_tool_has_a_case(self, library: Library) -> None:
        assert {tool.name for tool in every_tool(library)} == set(TOOLS)

    @pytest.mark.parametrize("names", [*((name,) for name in TOOLS if name not in IN_ORDER), IN_ORDER], ids=",".join)
    def test_answers(self, world: World, library: Library, names: tuple[str, ...]) -> None:
        """The object, its text, and what an MCP client receives."""
        calls = [(name, arguments) for name in names for arguments in TOOLS[name](world.ids)]
        for name, arguments in calls:
            reply = library.reply(name, arguments)
            assert not reply.is_error, reply.text
            assert json.loads(reply.text) == reply.data
            check(without_request(reply.data))
            assert name in SILENT or MARK in reply.text

    @pytest.mark.parametrize("name", TOOLS)
    def test_errors(self, library: Library, name: str) -> None:
        tool = library.tool(name)
        for arguments in refused(tool):
            check(without_request(tool.handler(arguments).data))

    def test_over_mcp(self, world: World, library: Library) -> None:
        """Protocol errors too: an unknown tool, an unknown method."""

        async def use() -> list[str]:
            async with Client(direct(library, ["all"])) as client:
                opened = await client.call_tool("open", {"id": world.ids["events"][0]})
                fetched = await client.call_tool("moss.fetch", {"id": world.ids["capsule"]})
                with pytest.raises(Exception, match="Unknown tool") as unknown:
                    await client.call_tool(f"{HOSTILE}", {})
                return [opened.model_dump_json(), fetched.model_dump_json(), str(unknown.value)]

        for answer in anyio.run(use):
            check(answer)


# Command -> its arguments, each run as it is and with --json.
Lines = Callable[[dict[str, Any]], list[list[str]]]
COMMANDS: dict[str, Lines] = {
    "": lambda ids: [[]],
    "search": lambda ids: [["platypus"], ["platypus", "--type", "tool_call"], ["platypus", "--explain"]],
    "open": lambda ids: [
        *([id] for id in (ids["session"], ids["turn"], *ids["events"], ids["native"])),
        *([id, "--md"] for id in (ids["session"], ids["turn"], ids["events"][0])),
        [ids["session"], "--full"],
        [ids["named"]],
    ],
    "export": lambda ids: [
        [id, f"--{format}", "--output", target]
        for format in ("html", "md", "jsonl")
        for id in (ids["session"], ids["named"])
        for target in ("-", str(Path(ids["file"]).with_name(f"export.{format} {HOSTILE}")))
    ],
    "sessions": lambda ids: [["--since", "2001-01-01"]],
    "sources": lambda ids: [[], ["--all"]],
    "setup": lambda ids: [["--dry-run"], ["--dry-run", "--agents", HOSTILE]],
    "resume": lambda ids: [
        *(["--print", words] for words in (ids["session"], "platypus", HOSTILE)),
        ["--print", "--in", "codex", ids["session"]],
    ],
    "restore": lambda ids: [["--dry-run", ids["session"]], ["--dry-run", HOSTILE]],
    "service": lambda ids: [[]],
    "service install": lambda ids: [["--port", HOSTILE]],
    "service status": lambda ids: [[]],
    "service uninstall": lambda ids: [[]],
    "import": lambda ids: [["/nowhere/conversations.json"], [ids["file"]], [HOSTILE]],
    "traces": lambda ids: [[]],
    "traces list": lambda ids: [[]],
    "traces search": lambda ids: [[], ["--spans"]],
    "traces show": lambda ids: [[ids["trace"]]],
    "traces stats": lambda ids: [["--by", by, "--since", "2001-01-01"] for by in ("name", "model", "tool")],
    "usage": lambda ids: [
        ["--by", by, "--since", "2001-01-01"]
        for by in ("day", "project", "branch", "session", "model", "agent", "tool")
    ],
    "sync": lambda ids: [[]],
    "watch": lambda ids: [["--beside"]],
    "mcp": lambda ids: [["--json"], ["--tools", HOSTILE]],
    "ui": lambda ids: [["--print"]],
    "serve": lambda ids: [["--host", HOSTILE], ["--token", HOSTILE]],
    "tools": lambda ids: [[], ["--cost"]],
    "call": lambda ids: [["open", json.dumps({"id": ids["session"]})], [HOSTILE, "{}"], ["open", HOSTILE]],
    "live": lambda ids: [[]],
    "live worker": lambda ids: [["--url", HOSTILE]],
    "doctor": lambda ids: [[], ["--report"]],
    "forget": lambda ids: [["--dry-run", ids["session"]], ["--dry-run", f"session:{HOSTILE}"]],
    "team": lambda ids: [[]],
    "team status": lambda ids: [[], ["--all"], ["--dry-run"]],
    "team push": lambda ids: [[]],
    "team forget": lambda ids: [[HOSTILE], [ids["session"]]],
    "team token": lambda ids: [[]],
    "team token create": lambda ids: [[HOSTILE, "--project", HOSTILE]],
    "team token list": lambda ids: [[]],
    "team token revoke": lambda ids: [[HOSTILE]],
    "reindex": lambda ids: [[]],
    "help": lambda ids: [["search"]],
    "capsule": lambda ids: [[]],
    "capsule store": lambda ids: [["--name", f"cli {HOSTILE}", "--file", ids["file"], "--mode", "replace"]],
    "capsule fetch": lambda ids: [[ids["capsule"]]],
    "capsule fetch-many": lambda ids: [[ids["capsule"], ids["other"]]],
    "capsule update": lambda ids: [[ids["capsule"], "--title", HOSTILE]],
    "capsule append": lambda ids: [[ids["capsule"], "--section", "Decisions", "--content", HOSTILE]],
    "capsule delete": lambda ids: [[ids["other"]]],
    "capsule restore": lambda ids: [[ids["other"]]],
    "capsule latest": lambda ids: [["--include-text"]],
    "capsule list": lambda ids: [[]],
    "capsule inventory": lambda ids: [[]],
    "capsule search": lambda ids: [["platypus"]],
    "capsule history": lambda ids: [[ids["capsule"]], [ids["capsule"], "--version", "1"]],
    "capsule compose": lambda ids: [[ids["capsule"]]],
    "capsule export": lambda ids: [[]],
    "capsule import": lambda ids: [[HOSTILE]],
    "capsule purge": lambda ids: [[]],
}


SILENT_COMMANDS = (
    *("traces", "watch", "serve", "live worker", "capsule", "capsule import", "import"),
    *("service", "service install", "team", "team push", "team token", "team token revoke"),
)


def every_command(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    yield prefix.strip()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from every_command(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


class TestCommands:
    def test_every_command_has_a_case(self) -> None:
        assert set(every_command(program)) == set(COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_output(
        self, world: World, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Results and messages, for people and as JSON; and what is said of arguments that cannot be used."""
        monkeypatch.setenv("HOME", str(world.home))
        monkeypatch.setenv("COLUMNS", "1000")
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        if command.startswith("team"):
            for setting, value in (("URL", "http://127.0.0.1:1"), ("TOKEN", "t"), ("PROJECTS", "*")):
                monkeypatch.setenv(f"BACKSTORY_TEAM_{setting}", value)
        name = command.split()
        shown = ""
        for arguments in COMMANDS[command](world.ids):
            for more in ([], ["--json"]):
                if command == "watch":
                    done = run(world.home, *name, *arguments, *more)
                    out, err = done.stdout, done.stderr
                else:
                    run_program([*name, *arguments, *more])
                    out, err = capfd.readouterr()
                check(out + err)
                shown += out
        run_program([*name, f"--{HOSTILE}", HOSTILE])
        check("".join(capfd.readouterr()))
        assert shown or command in SILENT_COMMANDS, err


# Route -> what a request to it gives. Programs keep their own data behind EXACT ones, and get it back as they sent it;
# telemetry gets no answer.
EXACT = {"/session/{function:path}", "/session/events", "websocket /", "websocket /otel"}
Routes = Callable[[Served, dict[str, Any]], Iterator[httpx.Response]]


def _tools(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
    for name, calls in TOOLS.items():
        for arguments in calls(ids):
            yield httpx.post(f"{server.url}/api/tools/{name}", json=arguments, timeout=60)
    yield httpx.post(f"{server.url}/api/tools/{quote(HOSTILE)}", json={})
    yield httpx.post(f"{server.url}/api/tools/open", content=HOSTILE.encode())
    yield httpx.post(f"{server.url}/api/tools/open", json=[HOSTILE])


def _mcp(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
    async def use() -> str:
        async with Client(f"{server.url}/mcp") as client:
            opened = await client.call_tool("open", {"id": ids["events"][0]})
            return opened.model_dump_json()

    check(anyio.run(use))
    yield httpx.post(f"{server.url}/mcp", content=HOSTILE.encode(), headers={"content-type": "application/json"})
    yield httpx.post(f"{server.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": HOSTILE})


def _telemetry(path: str) -> Routes:
    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        yield httpx.post(f"{server.url}{path}", content=HOSTILE.encode(), headers={"content-type": "application/json"})
        yield httpx.post(f"{server.url}{path}", json={HOSTILE: HOSTILE})
        yield httpx.post(f"{server.url}{path}", content=HOSTILE.encode(), headers={"content-type": "text/x"})

    return requests


def _get(path: str) -> Routes:
    return lambda server, ids: iter([httpx.get(f"{server.url}{path}")])


def _search_page(path: str) -> Routes:
    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        for query in ({}, {"q": "platypus"}, {"q": "platypus", "type": "tool_call"}, {"q": HOSTILE, "branch": HOSTILE}):
            yield httpx.get(f"{server.url}{path}", params=query, timeout=30)

    return requests


def _session_page(suffix: str) -> Routes:
    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        for id in (ids["session"], ids["turn"], ids["native"], ids["named"], quote(HOSTILE, safe="")):
            address = f"{server.url}/s/{id}{suffix}"
            yield httpx.get(address, params={"find": "platypus"}, follow_redirects=True, timeout=30)

    return requests


def _event_texts(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
    for event in (*ids["events"], quote(HOSTILE, safe="")):
        yield httpx.get(f"{server.url}/s/{ids['session']}/{event}.txt")


def _images(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
    for event in (*ids["events"], quote(HOSTILE, safe="")):
        yield httpx.get(f"{server.url}/s/{ids['session']}/{event}/image/1")


def _forms(path: str) -> Routes:
    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        yield httpx.post(f"{server.url}{path}", data={"theme": HOSTILE, "token": HOSTILE, "back": f"/?q={HOSTILE}"})

    return requests


def _filled(path: str, ids: dict[str, Any]) -> str:
    return path.format_map({name: quote(str(id)) for name, id in ids.items()})


def _pages(*paths: str) -> Routes:
    """Pages and their JSON twins; `{session}` and other names are those of the ids. The first path is there."""

    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        for path in paths:
            yield httpx.get(
                server.url + path.format_map({name: quote(str(id)) for name, id in ids.items()}), timeout=30
            )

    return requests


def _spans(suffix: str) -> Routes:
    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        trace = f"{server.url}/traces/{quote(ids['trace'])}"
        for row in httpx.get(f"{trace}.json").json()["rows"]:
            yield httpx.get(f"{trace}/{row[0]}{suffix}")
        yield httpx.get(f"{trace}/{quote(HOSTILE)}{suffix}")

    return requests


def _capsule_forms(path: str) -> Routes:
    """Forms of a page: without its token, with hostile fields, and as they are sent."""

    def requests(server: Served, ids: dict[str, Any]) -> Iterator[httpx.Response]:
        page = httpx.get(f"{server.url}/capsules").text
        token = page.partition('name="form_token" value="')[2].partition('"')[0]
        url = server.url + _filled(path, ids)
        fields = {"text": HOSTILE, "name": HOSTILE, "title": HOSTILE, "tags": HOSTILE, "action": HOSTILE}
        yield httpx.get(url)
        yield httpx.post(url, data=fields)
        yield httpx.post(url, data={**fields, "form_token": token}, timeout=30)
        yield httpx.post(url, data={**fields, "form_token": token, "allow_thin": "1"}, timeout=30)
        yield httpx.post(url, data={"form_token": token}, files={"file": ("x", HOSTILE.encode())}, timeout=30)

    return requests


_TRACES = (
    "",
    "?of=spans",
    f"?name={quote(HOSTILE)}&f={quote(HOSTILE)}",
    f"?field={quote(HOSTILE)}&value={quote(HOSTILE)}",
)
_USAGE = ("?range=all", f"?project={quote(HOSTILE)}&source={quote(HOSTILE)}", f"?range={quote(HOSTILE)}")
_LIVE = ("", "?session={session}", "?session={session}&part=tail", f"?session={quote(HOSTILE)}")
_CAPSULES = ("", "?q=platypus", f"?q={quote(HOSTILE)}&workspace={quote(HOSTILE)}", "?deleted")
_CAPSULE = ("", "?version=1")

ROUTES: dict[str, Routes] = {
    **{f"/traces{end}": _pages(*(f"/traces{end}{query}" for query in _TRACES)) for end in ("", ".json")},
    "/traces/{id}": _pages("/traces/{trace}", "/traces/{trace}?view=tree", f"/traces/{quote(HOSTILE)}"),
    "/traces/{id}.json": _pages("/traces/{trace}.json", f"/traces/{quote(HOSTILE)}.json"),
    "/traces/{id}/{span}": _spans(""),
    "/traces/{id}/{span}.json": _spans(".json"),
    **{f"/usage{end}": _pages(*(f"/usage{end}{query}" for query in _USAGE)) for end in ("", ".json")},
    **{f"/live{end}": _pages(*(f"/live{end}{query}" for query in _LIVE)) for end in ("", ".json")},
    "/capsules.json": lambda server, ids: chain(
        _pages(*(f"/capsules.json{query}" for query in _CAPSULES))(server, ids),
        _capsule_forms("/capsules.json")(server, ids),
    ),
    "/capsules": lambda server, ids: chain(
        _pages(*(f"/capsules{query}" for query in _CAPSULES))(server, ids), _capsule_forms("/capsules")(server, ids)
    ),
    "/capsules/lint": _capsule_forms("/capsules/lint"),
    "/capsules/lint.json": _capsule_forms("/capsules/lint.json"),
    "/capsules/new": _capsule_forms("/capsules/new"),
    "/capsules/new.json": _capsule_forms("/capsules/new.json"),
    "/capsules/{path:path}/edit": _capsule_forms("/capsules/default/{capsule}/edit"),
    "/capsules/{path:path}/edit.json": _capsule_forms("/capsules/default/{capsule}/edit.json"),
    "/capsules/{path:path}.md": _pages("/capsules/default/{capsule}.md", f"/capsules/{quote(HOSTILE)}.md"),
    "/capsules/{path:path}.json": lambda server, ids: chain(
        _pages(*(f"/capsules/default/{{capsule}}.json{query}" for query in _CAPSULE))(server, ids),
        _capsule_forms("/capsules/default/{capsule}.json")(server, ids),
    ),
    "/capsules/{path:path}": lambda server, ids: chain(
        _pages(*(f"/capsules/default/{{capsule}}{query}" for query in _CAPSULE))(server, ids),
        _capsule_forms("/capsules/default/{capsule}")(server, ids),
    ),
    "/doctor": _pages("/doctor", "/doctor?part=sync"),
    "/doctor.json": _pages("/doctor.json", "/doctor.json?part=sync"),
    "/": _search_page("/"),
    "/.json": _search_page("/.json"),
    "/s/{id}": _session_page(""),
    "/s/{id}.json": _session_page(".json"),
    "/s/{id}.html": _session_page(".html"),
    "/s/{id}.md": _session_page(".md"),
    "/s/{id}.jsonl": _session_page(".jsonl"),
    "/s/{id}/{event}.txt": _event_texts,
    "/s/{id}/{event}/image/{number:int}": _images,
    "/static/{version}/{name}": _get("/static/1/app.js"),
    "/theme": _forms("/theme"),
    "/token": _forms("/token"),
    "/healthz": _get("/healthz"),
    "/api/tools": _get("/api/tools"),
    "/api/tools/{name}": _tools,
    "/mcp": _mcp,
    "/v1/traces": _telemetry("/v1/traces"),
    "/v1/logs": _telemetry("/v1/logs"),
}


def every_route() -> set[str]:
    app = create_app(FakeLibrary(), FakeLive())  # type: ignore[arg-type]
    found = set()
    for route in app.routes:
        assert isinstance(route, Route | WebSocketRoute), f"{route} is new to this test"
        found.add(route.path if isinstance(route, Route) else f"websocket {route.path}")
    return found


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Served]:
    with Served(world.home) as server:
        yield server


class TestRoutes:
    def test_every_route_has_a_case(self) -> None:
        assert every_route() == {*ROUTES, *EXACT}

    @pytest.mark.parametrize("path", ROUTES)
    def test_responses(self, world: World, server: Served, path: str) -> None:
        for response in ROUTES[path](server, world.ids):
            data = response.json() if response.headers.get("content-type") == "application/json" else response.text
            check(without_request(data) if isinstance(data, dict) else data)

    def test_exported_files(self, world: World) -> None:
        for path in world.home.rglob("export.*"):
            check(path.read_text("utf-8"))

    def test_paths_that_are_not_there(self, server: Served) -> None:
        for method in ("GET", "POST", "DELETE"):
            check(httpx.request(method, f"{server.url}/{quote(HOSTILE)}").text)

    def test_programs_get_back_what_they_stored(self, world: World, server: Served) -> None:
        """Session functions and their events are data between programs; their errors are for people."""
        session = server.call("create", {"title": HOSTILE})["session_id"]
        entry = server.call("append", {"session_id": session, "message": _message(HOSTILE)})["entry_id"]
        got = server.call("get-message", {"session_id": session, "entry_id": entry})
        assert HOSTILE in json.dumps(got, ensure_ascii=False).replace("\\u001b", "\x1b")
        check(httpx.post(f"{server.url}/session/get", json={"session_id": {HOSTILE: 1}}).text)
        check(httpx.post(f"{server.url}/session/{quote(HOSTILE)}", json={}).text)
        check(httpx.get(f"{server.url}/session/events", params={HOSTILE: HOSTILE}).text)

    def test_the_log(self, world: World, server: Served) -> None:
        eventually(lambda: httpx.get(f"{server.url}/healthz").status_code == 200)
        check(server.stderr)
