"""Messages: prompts, answers, reasoning, context, messages between agents. Most are written twice or more."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from ...model import EventType
from ..base import Item, TurnEnd
from ..fields import Payload, list_of, mapping_of
from .outputs import as_mapping
from .session import EVENT, ITEM, TURN_ITEM, Session, fingerprint

_ITEM_FACTS = "internal_chat_message_metadata_passthrough"

# What the user said


def _user(session: Session, form: int, said: Prompt, turn: str | None = None) -> list[Item]:
    items: list[Item] = _context(session, form, said.injected)
    state = session.state
    if form != ITEM:
        state.has_user_events = True
    if not said.typed or not session.unseen("prompt", form, [said.typed]):
        return items
    key = fingerprint(said.typed)
    if form == ITEM and state.has_user_events and key == state.aborted_prompt:
        # After an abort Codex may send the model the same prompt again. Where prompts come in two forms, the user
        # repeated it only if the other form follows.
        session.hold("prompt")
        return items
    if state.aborted_prompt:
        session.drop_held("prompt")
    state.last_prompt, state.aborted_prompt, state.answered = key, "", False
    if turn:
        session.begin_turn(turn)
    elif session.needs_turn:
        session.begin_unnamed_turn(said.typed)
    extra = {"images": said.images} if said.images else None
    items.append(session.event(EventType.USER_INPUT, said.typed, starts_turn=True, extra=extra))
    return items


def _context(session: Session, form: int, pieces: list[str]) -> list[Item]:
    """Instructions, environment, notices: kept as what they are, never a prompt."""
    fresh = session.unseen("context", form, filter(None, pieces))
    return [session.event(EventType.SYSTEM, "\n\n".join(fresh))] if fresh else []


def _turn_of(payload: Payload) -> str | None:
    """The turn a response item names itself; most do not."""
    for key in (_ITEM_FACTS, "metadata"):
        if isinstance(metadata := payload.get(key), dict) and isinstance(turn := metadata.get("turn_id"), str):
            return turn
    return None


def _read_prompt(session: Session, payload: Payload) -> Prompt:
    """A user message. Since 0.166 or so it says of each block what it is; before, only its text shows it."""
    content = payload.get("content")
    kinds = mapping_of(payload, _ITEM_FACTS).get("content_item_kinds")
    if not isinstance(kinds, list) or not isinstance(content, list) or len(kinds) != len(content):
        return read_blocks(content)
    session.state.marks_prompts = True
    typed = [block for block, kind in zip(content, kinds, strict=True) if str(kind).startswith("user.")]
    injected = [block for block, kind in zip(content, kinds, strict=True) if not str(kind).startswith("user.")]
    return read_blocks(typed, peel=False)._replace(injected=block_texts(injected))


def say_user_message(session: Session, payload: Payload) -> list[Item]:
    text = "".join(block_texts(payload.get("message")))
    if payload.get("kind") in ("user_instructions", "environment_context"):  # 2025: some versions say so themselves
        return _context(session, EVENT, [text])
    images = sum(len(list_of(payload.get(name))) for name in ("images", "local_images"))
    said = split(text)._replace(images=images)
    if not said.typed and images:
        said = said._replace(typed="[image]")
    return _user(session, EVENT, said)


def item_user_message(session: Session, item: Payload) -> list[Item]:
    return _user(session, TURN_ITEM, read_blocks(item.get("content"), peel=not session.state.marks_prompts))


def item_hook_prompt(session: Session, item: Payload) -> list[Item]:
    return _context(session, TURN_ITEM, block_texts(item.get("fragments")))


# What the model said


def answer(session: Session, form: int, texts: list[str], *, final: bool = False) -> list[Item]:
    """An answer as the model wrote it holds elements that its other forms leave out: citations, which are dropped, and
    plans, which are also written on their own and are therefore compared on their own. A final one ends the turn,
    whichever of its forms says that it is final."""
    parts = []
    for text in texts:
        text, _ = _take_out("oai-mem-citation", text)
        text, plans = _take_out("proposed_plan", text)
        parts += [text, *plans]
    fresh = session.unseen("answer", form, [part for part in parts if part.strip()])
    if not fresh:
        if not final or session.state.final:
            return []
        session.state.final = True
        return [TurnEnd()]
    session.state.answered = True
    event = session.event(
        EventType.ASSISTANT_RESPONSE,
        "\n\n".join(part.strip() for part in fresh),
        model=session.state.model,
        usage_key=session.usage_key,
        ends_turn=final,
    )
    return [event]


def _take_out(element: str, text: str) -> tuple[str, list[str]]:
    """The text without the elements of a name, and what was in them."""
    opening, closing = f"<{element}>", f"</{element}>"
    if opening not in text:
        return text, []
    kept, taken = [], []
    at = 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[at:start])
        taken.append(text[start + len(opening) : end])
        at = end + len(closing)
    return "".join([*kept, text[at:]]), taken


def _is_final(message: Payload) -> bool:
    """Newer versions say of each answer whether it is a remark on the way (`commentary`) or the last one."""
    return message.get("phase") == "final_answer"


def say_agent_message(session: Session, payload: Payload) -> list[Item]:
    return answer(session, EVENT, block_texts(payload.get("message")), final=_is_final(payload))


def item_agent_message(session: Session, item: Payload) -> list[Item]:
    return answer(session, TURN_ITEM, block_texts(item.get("content")), final=_is_final(item))


def item_plan(session: Session, item: Payload) -> list[Item]:
    return answer(session, TURN_ITEM, block_texts(item.get("text")))


def message(session: Session, payload: Payload) -> list[Item]:
    role, content = payload.get("role"), payload.get("content")
    if role == "user":
        return _user(session, ITEM, _read_prompt(session, payload), _turn_of(payload))
    texts = block_texts(content)
    if role == "assistant":
        if len(texts) == 1 and texts[0].startswith('{"author":') and (letter := as_mapping(texts[0])):
            return inter_agent(session, letter)  # early multi-agent versions disguise messages between agents so
        return answer(session, ITEM, texts, final=_is_final(payload))
    return _context(session, ITEM, texts)  # developer, system


def _think(session: Session, form: int, parts: list[str]) -> list[Item]:
    fresh = session.unseen("reasoning", form, [part for part in parts if part.strip()])
    if not fresh:
        return []
    state = session.state
    text = "\n\n".join(part.strip() for part in fresh)
    return [session.event(EventType.REASONING, text, model=state.model, usage_key=session.usage_key)]


def reasoning(session: Session, payload: Payload) -> list[Item]:
    """Mostly encrypted: then the summary is all there is, and often not even that."""
    return _think(session, ITEM, block_texts(payload.get("summary")) + block_texts(payload.get("content")))


def reasoning_event(session: Session, payload: Payload) -> list[Item]:
    return _think(session, EVENT, block_texts(payload.get("text")))


def item_reasoning(session: Session, item: Payload) -> list[Item]:
    return _think(session, TURN_ITEM, block_texts(item.get("summary_text")) + block_texts(item.get("raw_content")))


# Messages between agents


def inter_agent(session: Session, payload: Payload, form: int = EVENT) -> list[Item]:
    """A message from the agent that started this one is a prompt. A report from an agent that this one started is
    context."""
    content = payload.get("content")
    head, _, text = "\n\n".join(block_texts(content)).strip().partition("Payload:")
    if not head.startswith("Message Type:"):
        text = head + _ + text
    text, sealed = text.strip(), _is_encrypted(content)
    if not (text or sealed) or not session.unseen("letter", form, [text or head]):
        return []
    path, author = session.state.agent_path, str(payload.get("author"))
    from_above = session.state.about.get("parent") and not (path and author.startswith(f"{path}/"))
    if not from_above:
        return [session.event(EventType.SYSTEM, text or head.strip())]
    if text:
        return _user(session, ITEM, Prompt([], text), _turn_of(payload))
    # All that can be read of it is who sent it; still, the work on it is a turn.
    if turn := _turn_of(payload):
        session.begin_turn(turn)
    return [session.event(EventType.SYSTEM, head.strip(), starts_turn=True)]


def _is_encrypted(content: Any) -> bool:
    blocks = list_of(content)
    return any(isinstance(block, dict) and block.get("type") == "encrypted_content" for block in blocks)


def response_agent_message(session: Session, payload: Payload) -> list[Item]:
    return inter_agent(session, payload, ITEM)


# Compaction. The history that replaces the old one repeats events that are there already: it is not replayed.


def _compaction(session: Session, form: int, summary: Any) -> list[Item]:
    """The record and the notice of it are one event, unless the notice came first and only the record has a summary."""
    text = summary.strip() if isinstance(summary, str) else ""
    if not session.unseen("compaction", form, ["compaction"]) and not (text and form == ITEM):
        return []
    return [session.event(EventType.COMPACTION, text or "Context compacted.")]


def compacted(session: Session, payload: Payload) -> list[Item]:
    return _compaction(session, ITEM, payload.get("message"))


def context_compacted(session: Session, payload: Payload) -> list[Item]:
    return _compaction(session, EVENT, payload.get("last_agent_message"))


def item_context_compaction(session: Session, item: Payload) -> list[Item]:
    return _compaction(session, TURN_ITEM, None)


# Elements that Codex injects, by name. Any other element is the user's own: people paste HTML.
_ELEMENTS: Final = (
    "environment_context",
    "environments_instructions",
    "user_instructions",
    "INSTRUCTIONS",
    "turn_aborted",
    "skill",
    "skills_instructions",
    "subagent_notification",
    "goal_context",
    "codex_internal_context",
    "extension_context",
    "recommended_plugins",
    "plugins_instructions",
    "apps_instructions",
    "hook_prompt",
    "user_action",
    "user_shell_command",
    "permissions instructions",
    "collaboration_mode",
    "personality_spec",
    "model_switch",
    "realtime_conversation",
    "token_budget",
    r"external_\w+",
)
_ELEMENT = re.compile(rf"<({'|'.join(_ELEMENTS)})(?:\s[^>]*)?>", re.IGNORECASE)
_AGENTS_MD = "# AGENTS.md instructions"
# The IDE extension and the app write their context (open files, selections, attachments) under headings, then this one.
_REQUEST = re.compile(r"^## My request for Codex:[ \t]*\n?", re.MULTILINE)
# Notices without any markup.
_NOTICES: Final = (
    "Another language model started to solve this problem and produced a summary of its thinking process.",
    "Warning: apply_patch was requested via ",
    "Warning: The maximum number of unified exec processes you can keep open is ",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
)
_SPACE = re.compile(r"\s*")
_IMAGE_MARK = re.compile(r"</?image(?:\s[^>]*)?>")


class Prompt(NamedTuple):
    injected: list[str]
    typed: str
    images: int = 0


def split(text: str, *, peel: bool = True) -> Prompt:
    """Peel what is injected off the front of a text, layer by layer. Without `peel`, only what editors put there."""
    injected = []
    at = _skip_space(text, 0)
    while peel and at < len(text) and (end := _injected_end(text, at)):
        injected.append(text[at:end])
        at = _skip_space(text, end)
    rest = text[at:].rstrip()
    request = _REQUEST.search(rest)
    if request and (request.start() == 0 or rest.startswith("# ")):
        injected.append(rest[: request.start()].rstrip())
        rest = rest[request.end() :].lstrip()
    return Prompt(list(filter(None, injected)), rest)


def _injected_end(text: str, at: int) -> int | None:
    """The end of the injected piece that starts here, if one does. An unclosed one takes all there is."""
    if text.startswith(_AGENTS_MD, at):
        return _end_of("</INSTRUCTIONS>", text, at)
    if text.startswith("<", at) and (element := _ELEMENT.match(text, at)):
        return _end_of(f"</{element[1]}>", text, at)
    return len(text) if text.startswith(_NOTICES, at) else None


def _end_of(closing: str, text: str, at: int) -> int:
    found = re.compile(re.escape(closing), re.IGNORECASE).search(text, at)
    return found.end() if found else len(text)


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def block_texts(content: Any) -> list[str]:
    """The texts of a message's content, which is a string or a list of blocks. Images and ciphers have none."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [
        text
        for block in content
        if isinstance(text := block.get("text") if isinstance(block, dict) else block, str) and text
    ]


def read_blocks(content: Any, *, peel: bool = True) -> Prompt:
    """A user message. Each block is read on its own: context often is the first block and the prompt the next."""
    injected: list[str] = []
    typed: list[str] = []
    for text in block_texts(content):
        if _IMAGE_MARK.fullmatch(text.strip()):
            continue
        parts = split(text, peel=peel)
        injected += parts.injected
        typed.append(parts.typed)
    prompt = "\n\n".join(filter(None, typed))
    images = sum(map(_is_image, content)) if isinstance(content, list) else 0
    return Prompt(injected, prompt or ("[image]" if images else ""), images)


def _is_image(block: Any) -> bool:
    return isinstance(block, dict) and "image" in str(block.get("type"))
