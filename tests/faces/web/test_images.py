"""Images of transcripts: read from the original records, never kept in the archive."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backstory.faces.web.session import session_page
from backstory.ingest.images import MAX_BYTES, decode_image
from backstory.library import Library
from backstory.model import session_id
from tests.transcripts import Transcript

from .conftest import WebServer, wait_until

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
STAMP = "2026-09-14T10:00:0{}.123Z"


def png(width: int = 40, height: int = 20) -> bytes:
    rows = b"".join(b"\0" + b"\x20\x90\x80" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def block(content: bytes, media_type: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(content).decode()}
    return {"type": "image", "source": source}


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def claude_code() -> Transcript:
    transcript = Transcript("pictures")
    transcript.prompt([{"type": "text", "text": "What is wrong in these?"}, block(png()), block(SVG, "image/svg+xml")])
    transcript.call("Read", {"file_path": "chart.png"}, [block(png(60, 30))])
    transcript.answer("The chart is empty.")
    return transcript


def codex(home: Path) -> Path:
    def record(kind: str, number: int, **payload: Any) -> str:
        return json.dumps({"timestamp": STAMP.format(number), "type": kind, "payload": payload}) + "\n"

    content = [{"type": "input_text", "text": "Look at this."}, {"type": "input_image", "image_url": data_url(png())}]
    arguments = json.dumps({"path": "/home/dev/shop/chart.png"})
    output = [{"type": "input_image", "image_url": data_url(png(60, 30))}]
    lines = [
        record("session_meta", 0, id="0199d3a0-0000-7000-8000-000000000001", cwd="/home/dev/shop", timestamp="x"),
        record("response_item", 1, type="message", role="user", content=content),
        record("response_item", 2, type="function_call", name="view_image", arguments=arguments, call_id="call_1"),
        record("response_item", 3, type="function_call_output", call_id="call_1", output=output),
        record("response_item", 4, type="message", role="assistant", content=[{"type": "output_text", "text": "ok"}]),
    ]
    folder = home / ".codex" / "sessions" / "2026" / "09" / "14"
    folder.mkdir(parents=True)
    path = folder / "rollout-2026-09-14T10-00-00-0199d3a0-0000-7000-8000-000000000001.jsonl"
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    home = tmp_path_factory.mktemp("pictures")
    claude_code().write(home)
    codex(home)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()
        server = WebServer(library)
        yield server
        server.stop()


CLAUDE_CODE = session_id(f"claude-code/{Transcript('pictures').id}")
CODEX = session_id("codex/0199d3a0-0000-7000-8000-000000000001")


def items(site: WebServer, id: str) -> list[Any]:
    return [item for turn in httpx.get(f"{site.url}/s/{id}.json").json()["turns"] for item in turn["items"]]


class TestImages:
    @pytest.mark.parametrize("id", [CLAUDE_CODE, CODEX], ids=["claude-code", "codex"])
    def test_those_of_prompts_and_outputs_are_read_from_the_transcript(self, id: str, pictured: WebServer) -> None:
        prompt, tool = items(pictured, id)[:2]
        for item, expected in ((prompt, png()), (tool, png(60, 30))):
            answer = httpx.get(pictured.url + item["image_urls"][0])
            assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "image/png", expected)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answer.headers["content-security-policy"]

    def test_they_stand_in_the_place_of_their_marks(self, pictured: WebServer) -> None:
        assert "[image]" not in items(pictured, CLAUDE_CODE)[0]["text"]

    def test_codex_may_have_them_in_the_other_record_of_a_prompt(self, tmp_path: Path) -> None:
        path = codex(tmp_path)
        said = {"type": "user_message", "message": "Look at this.", "local_images": ["/home/dev/shop/chart.png"]}
        event = json.dumps({"timestamp": STAMP.format(1).replace(".123", ".120"), "type": "event_msg", "payload": said})
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([first, event, *rest, ""]))
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            prompt = library.read_turn(CODEX.replace("session:", "turn:") + ":1")[0]
            found = library.image(prompt.event.id, 1)
        assert found is not None
        assert found.content == png()

    def test_one_that_could_hold_a_script_is_not_served(self, pictured: WebServer) -> None:
        first, second = items(pictured, CLAUDE_CODE)[0]["image_urls"]
        assert httpx.get(pictured.url + second).status_code == 404
        assert httpx.get(pictured.url + first.removesuffix("1") + "9").status_code == 404

    def test_the_page_shows_them_and_says_which_it_cannot(
        self, pictured: WebServer, open_page: Callable[..., Any]
    ) -> None:
        # The image that is refused is an error in the console.
        page = open_page(f"/s/{CLAUDE_CODE}", base=pictured.url, quiet=False)
        page.locator(".user .picture").wait_for()
        assert "cannot be shown" in page.locator(".user .picture").inner_text()
        wait_until(page, "document.querySelector('.user .pictures img').naturalWidth === 40")

    def test_an_image_that_failed_before_the_script_was_loaded(
        self, pictured: WebServer, open_page: Callable[..., Any]
    ) -> None:
        page = open_page("/doctor", base=pictured.url, quiet=False)
        held: list[Any] = []
        page.route("**/session.js*", lambda route: held.append(route))
        page.goto(f"{pictured.url}/s/{CLAUDE_CODE}", wait_until="commit")
        failed = (
            "[...document.querySelectorAll('.user .pictures img')].some((one) => one.complete && !one.naturalWidth)"
        )
        wait_until(page, failed)
        wait_until(page, "document.readyState !== 'loading'")
        held[0].continue_()
        page.locator(".user .picture").wait_for()

    def test_without_a_transcript_there_is_a_note(self, tmp_path: Path) -> None:
        path = claude_code().write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={"BACKSTORY_KEEP_RAW": "false"}) as library:
            library.sync()
            path.unlink()
            server = WebServer(library)
            prompt = items(server, CLAUDE_CODE)[0]
            page = httpx.get(f"{server.url}/s/{CLAUDE_CODE}").text
            server.stop()
        assert (prompt["images"], prompt["image_urls"]) == (2, [])
        assert "2 images in the transcript, not shown here" in page

    def test_an_output_that_says_image_a_thousand_times_makes_no_thousand_images(self, tmp_path: Path) -> None:
        Transcript("marks").prompt("Print it.").call("Bash", {"command": "yes"}, "[image]\n" * 1000).write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            page = session_page(library, session_id(f"claude-code/{Transcript('marks').id}"), {})
        (tool,) = [item for item in page.turns[0].items if item.kind == "tool"]
        assert (tool.images, len(tool.image_urls)) == (1000, 20)

    def test_raw_records_have_them_after_the_agent_deleted_its_transcript(self, tmp_path: Path) -> None:
        path = claude_code().write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            path.unlink()
            event = library.read_turn(CLAUDE_CODE.replace("session:", "turn:") + ":1")[0]
            found = library.image(event.event.id, 1)
        assert found is not None
        assert found.content == png()


class TestDecoding:
    def test_the_first_bytes_decide_what_it_is(self) -> None:
        for content, kind in (
            (png(), "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ):
            found = decode_image(block(content, "text/html")["source"])
            assert found is not None
            assert found.media_type == kind

    @pytest.mark.parametrize("content", [SVG, b"", b"<html>", b"\x89PNG"])
    def test_anything_else_is_refused(self, content: bytes) -> None:
        assert decode_image(block(content)["source"]) is None

    def test_damaged_and_too_large_ones_are_refused(self) -> None:
        assert decode_image("data:image/png;base64,iVBORw0KGgo(") is None
        assert decode_image({"data": "A" * (MAX_BYTES * 4 // 3 + 8)}) is None
