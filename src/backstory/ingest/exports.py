"""Data exports of chat services: one large document with all conversations, kept as one file for each.

The files lie in Backstory's home and are read like those of any agent. A later export rewrites those that changed.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..config import make_private_folder
from ..files import replacing

FOLDER = "imports"
_CHUNK_CHARS = 1 << 20
_MAX_CONVERSATION_CHARS = 64 << 20
_CONVERSATIONS = re.compile(r"(?:^|/)conversations[^/]*\.json$")
_PLAIN_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def import_export(file: Path, home: Path, is_forgotten: Callable[[str], bool]) -> dict[str, int]:
    """Take the conversations of an export into a folder for each service, but for those that were forgotten; gives how
    many were taken of each. Raises ValueError for a file that is no export."""
    counts: Counter[str] = Counter()
    for conversation in _conversations(file):
        source, identity = _identify(conversation)
        if source is None or not _PLAIN_ID.fullmatch(identity):
            continue
        taken = not is_forgotten(f"{source}/{identity}")
        counts[source] += taken
        if taken:
            _keep(make_private_folder(home / FOLDER) / source / f"{identity}.json", conversation)
    if not counts:
        raise ValueError(f"{file.name} holds no conversations of Claude.ai or ChatGPT")
    return dict(counts)


def _identify(conversation: Any) -> tuple[str | None, str]:
    if isinstance(conversation, dict) and "chat_messages" in conversation:
        return "claude-ai", str(conversation.get("uuid"))
    if isinstance(conversation, dict) and "mapping" in conversation:
        return "chatgpt", str(conversation.get("conversation_id") or conversation.get("id"))
    return None, ""


def _keep(path: Path, conversation: Any) -> None:
    """An unchanged file keeps its time, so that it is not read again."""
    make_private_folder(path.parent)
    text = json.dumps(conversation, ensure_ascii=False).encode("utf-8", "replace")
    if path.exists() and path.read_bytes() == text:
        return
    with replacing(path) as stream:
        stream.write(text)


def _conversations(file: Path) -> Iterator[Any]:
    if not zipfile.is_zipfile(file):
        with file.open("rb") as stream:
            yield from _elements(stream)
        return
    try:
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                if _CONVERSATIONS.search(name):
                    with archive.open(name) as stream:
                        yield from _elements(stream)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two: an unknown compression, and a password.
        raise ValueError(f"the ZIP cannot be unpacked ({error})") from None


def _elements(stream: IO[bytes]) -> Iterator[Any]:
    """The elements of a JSON array, one at a time: an export may be larger than memory."""
    import codecs

    decoder, utf8 = json.JSONDecoder(strict=False), codecs.getincrementaldecoder("utf-8-sig")("replace")
    text, want = "", _CHUNK_CHARS
    opened = False
    while True:
        chunk = stream.read(want)
        text += utf8.decode(chunk, not chunk)
        position = 0
        while True:
            position = _skip(text, position)
            if not opened and text[position : position + 1] == "[":
                opened, position = True, position + 1
                continue
            if not opened and text[position : position + 1] not in ("", "{"):
                raise ValueError("not a list of conversations")
            if text[position : position + 1] != "{":
                break
            try:
                element, position = decoder.raw_decode(text, position)
            except ValueError:
                break  # its end is yet to come
            yield element
        text = text[position:]
        if not chunk:
            if text.startswith("{"):
                raise ValueError("it ends in the middle of a conversation; those before it were taken")
            return
        if len(text) > _MAX_CONVERSATION_CHARS:
            raise ValueError("a conversation is too long, or the file is damaged")
        # So that a long one is tried a few times only, and one that is too long is not read further.
        want = min(max(_CHUNK_CHARS, len(text)), _MAX_CONVERSATION_CHARS + 1 - len(text))


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n,":
        position += 1
    return position
