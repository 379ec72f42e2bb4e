"""Tools: calls, their responses, and the reports of how they went.

A call and its response are response items joined on the call id. Codex also reports the end of many calls in events;
those only add facts (exit code, failure, files, child session) to the response that follows. Calls that have no
response item at all, because a script made them (code mode) or the provider ran them, are known by their report alone:
then it is the call and the response, with the script's call id as `script`. The script is a call too; of its output,
what those responses say already is left out.

MCP tools are named `mcp__<server>__<tool>` throughout, as the model knows them.
"""

from __future__ import annotations

from typing import Any

from ...model import EventType
from ..base import About, Event, Item
from ..fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .outputs import Output, as_json, as_mapping, duration, read_mcp, read_output, without_repeats
from .session import EVENT, ITEM, SCRIPT, TURN_ITEM, Session

# Tools whose answer is a person's.
_QUESTIONS = {"request_user_input"}
# States of a search that has not ended.
_RUNNING = {"in_progress", "searching", "open", "incomplete"}


def _call(session: Session, tool: str, arguments: Any, call_id: str | None, **fields: Any) -> Event:
    if call_id:
        session.remember(call_id, tool)
    model = session.model
    return session.event(
        EventType.TOOL_CALL,
        "",
        call_id or f"{tool} {as_json(arguments)}",
        tool=tool,
        call_id=call_id,
        model=model,
        originating_model=model,
        arguments=arguments,
        **{"usage_key": session.usage_key, **fields},
    )


def _response(session: Session, call_id: str | None, output: Output, tool: str | None = None) -> Event:
    call = session.state.calls.get(call_id) if call_id else None
    extra = None
    model = session.model
    exit_code, failed = output.exit_code, output.failed
    if call is not None:
        tool, model, extra = call.tool, call.model, call.extra
        exit_code = call.exit_code if exit_code is None else exit_code
        failed = call.failed if failed is None else failed
        call.answered = True
    if tool in _QUESTIONS:
        extra = {**(extra or {}), "asked": True}
    return session.event(
        EventType.TOOL_RESPONSE,
        output.text,
        call_id,
        tool=tool,
        call_id=call_id,
        originating_model=model,
        exit_code=exit_code,
        failed=failed,
        extra=extra,
    )


def _report(
    session: Session, call_id: str | None, tool: str, arguments: Any, output: Output, extra: Payload | None = None
) -> list[Item]:
    """Facts for the response to come; or, of a call that no other record has, the call and the response."""
    call = session.state.calls.get(call_id) if call_id else None
    if call is None:
        return _nested(session, call_id, tool, arguments, output, extra)
    if output.exit_code is not None:
        call.exit_code = output.exit_code
    if output.failed is not None:
        call.failed = output.failed
    if extra:
        call.extra = {**(call.extra or {}), **extra}
    return []


def _nested(
    session: Session, call_id: str | None, tool: str, arguments: Any, output: Output, extra: Payload | None
) -> list[Item]:
    """A call and its response, of a report that is all there is of them."""
    fields: Payload = {} if session.late_turn is None else {"usage_key": None}
    if script := session.open_script():
        caller = session.state.calls.get(script)
        fields = {"usage_key": caller.usage_key if caller else None, "extra": {"script": script}}
        session.show(script, [*output.text.splitlines(), *output.parts])
    call = _call(session, tool, arguments, call_id, **fields)
    response = _response(session, call_id, output, tool)
    response.extra = {**(response.extra or {}), **(extra or {}), **fields.get("extra", {})} or None
    return [call, response]


# Response items


def function_call(session: Session, payload: Payload) -> list[Item]:
    tool = text_of(payload, "name") or text_of(mapping_of(payload, "function"), "name") or "unknown"
    if namespace := text_of(payload, "namespace"):
        tool = _qualified(namespace, tool)
    arguments = payload.get("arguments")
    mapping = as_mapping(arguments)
    return [_call(session, tool, arguments if mapping is None else mapping, text_of(payload, "call_id", "id"))]


def _qualified(namespace: str, tool: str) -> str:
    """Namespaces of MCP servers make the tool's full name; others only group tools."""
    if not namespace.startswith("mcp__"):
        return f"{namespace}.{tool}"
    return namespace + tool if tool.startswith("_") or namespace.endswith("__") else f"{namespace}__{tool}"


def custom_tool_call(session: Session, payload: Payload) -> list[Item]:
    """Its input is free text, such as a patch."""
    arguments = {"input": payload.get("input")}
    return [_call(session, text_of(payload, "name") or "unknown", arguments, text_of(payload, "call_id", "id"))]


def local_shell_call(session: Session, payload: Payload) -> list[Item]:
    action = payload.get("action")
    if isinstance(action, dict):
        action = {key: value for key, value in action.items() if value and key not in ("type", "env")}
    return [_call(session, "local_shell", action, text_of(payload, "call_id", "id"))]


def tool_search_call(session: Session, payload: Payload) -> list[Item]:
    return [_call(session, "tool_search", payload.get("arguments"), text_of(payload, "call_id", "id"))]


def tool_search_output(session: Session, payload: Payload) -> list[Item]:
    """The names of the tools that were found, without their schemas."""
    lines = []
    tools = payload.get("tools")
    for group in list_of(tools):
        if not isinstance(group, dict):
            continue
        members = group.get("tools")
        for tool in members if isinstance(members, list) else [group]:
            if isinstance(tool, dict) and (name := text_of(tool, "name")):
                name = name if tool is group else _qualified(text_of(group, "name") or "", name)
                lines.append(f"{name}: {text_of(tool, 'description') or ''}")
    return [_response(session, text_of(payload, "call_id"), Output("\n".join(lines)), "tool_search")]


def tool_output(session: Session, payload: Payload) -> list[Item]:
    call_id = text_of(payload, "call_id", "id")
    raw = payload.get("output", payload.get("result"))
    output = read_output(raw)
    if stderr := text_of(payload, "stderr"):
        output = output._replace(text=f"{output.text}\n{stderr}")
    tool = text_of(payload, "name")
    call = session.state.calls.get(call_id) if call_id else None
    if call is not None and call.tool == SCRIPT and call.shown:
        output = output._replace(text=without_repeats(raw, frozenset(call.shown)))
    if call is not None and call.tool.endswith("spawn_agent"):
        child = (as_mapping(raw) or {}).get("agent_id")
        if isinstance(child, str):
            call.extra = {**(call.extra or {}), "child_session": child}
            return [_response(session, call_id, output, tool), About(session=child, parent_call=call_id)]
    return [_response(session, call_id, output, tool)]


# Reports


def exec_command_end(session: Session, payload: Payload) -> list[Item]:
    if payload.get("source") == "user_shell":
        return []  # the user's own command: the <user_shell_command> message has it
    text = text_of(payload, "aggregated_output", "formatted_output")
    if text is None:
        text = "\n".join(filter(None, (text_of(payload, "stdout"), text_of(payload, "stderr"))))
    exit_code = integer(payload.get("exit_code"))
    output = Output(text, exit_code, None if exit_code is None else exit_code != 0)
    arguments = {key: payload[key] for key in ("command", "cwd") if payload.get(key)}
    if isinstance(cwd := arguments.get("cwd"), str):
        arguments["cwd"] = local_path(cwd)
    return _report(
        session, text_of(payload, "call_id"), "exec_command", arguments, output, duration(payload.get("duration"))
    )


def patch_apply_end(session: Session, payload: Payload) -> list[Item]:
    changes = payload.get("changes")
    success = payload.get("success")
    if not isinstance(success, bool):
        success = payload.get("status") in ("completed", "success")
    text = "\n".join(filter(None, (text_of(payload, "stdout"), text_of(payload, "stderr"))))
    extra = {"files": list(changes)} if isinstance(changes, dict) and changes else None
    output = Output(text, failed=not success)
    return _report(session, text_of(payload, "call_id"), "apply_patch", {"changes": changes}, output, extra)


def mcp_tool_call_end(session: Session, payload: Payload) -> list[Item]:
    invocation = payload.get("invocation")
    if not isinstance(invocation, dict):
        invocation = {}
    tool = f"mcp__{text_of(invocation, 'server') or 'unknown'}__{text_of(invocation, 'tool') or 'unknown'}"
    output = read_mcp(payload.get("result"))
    extra = duration(payload.get("duration"))
    return _report(session, text_of(payload, "call_id"), tool, invocation.get("arguments"), output, extra)


def dynamic_tool_call(session: Session, payload: Payload) -> list[Item]:
    """Tools of the client. The response repeats all of the request, which is therefore not needed."""
    tool = text_of(payload, "tool") or "unknown"
    if namespace := text_of(payload, "namespace"):
        tool = _qualified(namespace, tool)
    success = payload.get("success")
    output = read_output(payload.get("content_items"))._replace(
        failed=None if not isinstance(success, bool) else not success
    )
    if error := text_of(payload, "error"):
        output = Output(error, failed=True)
    return _report(session, text_of(payload, "call_id"), tool, payload.get("arguments"), output)


def view_image(session: Session, payload: Payload) -> list[Item]:
    arguments = {"path": payload.get("path")}
    return _report(session, text_of(payload, "call_id"), "view_image", arguments, Output("[image]"))


# Searches of the provider: no call id joins the two forms, but what was asked for does. Their results are rarely
# written: then the response is empty, and says that the search has ended.


def web_search_call(session: Session, payload: Payload) -> list[Item]:
    return _web_search(session, ITEM, payload, text_of(payload, "id"))


def web_search_end(session: Session, payload: Payload) -> list[Item]:
    return _web_search(session, EVENT, payload, text_of(payload, "call_id"))


def _web_search(session: Session, form: int, payload: Payload, call_id: str | None) -> list[Item]:
    action = payload.get("action")
    arguments = {key: value for key, value in action.items() if value} if isinstance(action, dict) else {}
    if not arguments.keys() - {"type"} and (query := text_of(payload, "query")):
        arguments["query"] = query
    queries = arguments.get("queries") or [arguments.get("query", "")]
    asked = as_json([queries, arguments.get("url"), arguments.get("pattern")])
    items: list[Item] = []
    is_new = bool(session.unseen("web_search", form, [asked]))
    if is_new:
        items.append(_call(session, "web_search", arguments, call_id))
    status = text_of(payload, "status")
    lines = [
        "\n".join(filter(None, (text_of(result, "title"), text_of(result, "url"), text_of(result, "snippet"))))
        for result in mappings_of(payload.get("results"))
    ]
    if lines or (is_new and status not in _RUNNING):
        output = Output("\n\n".join(lines), failed=True if status == "failed" else None)
        items.append(_response(session, call_id, output, "web_search"))
    return items


def image_generation(session: Session, payload: Payload, form: int = ITEM) -> list[Item]:
    """The image itself (base64) is not kept."""
    call_id = text_of(payload, "call_id", "id")
    if not session.unseen("image", form, [call_id or text_of(payload, "revised_prompt") or ""]):
        return []
    where = text_of(payload, "saved_path") or text_of(payload, "status") or ""
    return [
        _call(session, "image_generation", {"prompt": payload.get("revised_prompt")}, call_id),
        _response(session, call_id, Output(where), "image_generation"),
    ]


def image_generation_end(session: Session, payload: Payload) -> list[Item]:
    return image_generation(session, payload, EVENT)


# Agents that start agents

_COLLAB_TOOLS = {
    "collab_agent_spawn_end": "spawn_agent",
    "collab_agent_interaction_end": "send_input",
    "collab_waiting_end": "wait_agent",
    "collab_close_end": "close_agent",
    "collab_resume_end": "resume_agent",
}


def collab_end(session: Session, payload: Payload) -> list[Item]:
    kind = str(payload.get("type"))
    arguments = {key: payload[key] for key in ("prompt", "receiver_thread_id") if payload.get(key)}
    status = payload.get("status", payload.get("statuses"))
    child, call_id = text_of(payload, "new_thread_id"), text_of(payload, "call_id")
    output = Output(status if isinstance(status, str) else as_json(status))
    extra = {"child_session": child} if child else None
    items = _report(session, call_id, _COLLAB_TOOLS.get(kind, kind), arguments, output, extra)
    return [*items, About(session=child, parent_call=call_id)] if child else items


def sub_agent_activity(session: Session, payload: Payload) -> list[Item]:
    child, kind = text_of(payload, "agent_thread_id"), text_of(payload, "kind") or "active"
    if not child:
        return []
    call_id = text_of(payload, "event_id")
    call = session.state.calls.get(call_id or "")
    if call is not None and not call.answered:
        call.extra = {**(call.extra or {}), "child_session": child}
        return [About(session=child, parent_call=call_id)] if call.tool.endswith("spawn_agent") else []
    text = f"Agent {text_of(payload, 'agent_path') or child} {kind}"
    return [session.event(EventType.RUNTIME, text, extra={"child_session": child})]


# The same as turn items, which call the call id `id`.


def item_command(session: Session, item: Payload) -> list[Item]:
    return exec_command_end(session, {**item, "call_id": item.get("id")})


def item_file_change(session: Session, item: Payload) -> list[Item]:
    return patch_apply_end(session, {**item, "call_id": item.get("id")})


def item_mcp_tool(session: Session, item: Payload) -> list[Item]:
    error = item.get("error")
    result = {"Err": error.get("message")} if isinstance(error, dict) else item.get("result")
    return mcp_tool_call_end(session, {**item, "call_id": item.get("id"), "invocation": item, "result": result})


def item_dynamic_tool(session: Session, item: Payload) -> list[Item]:
    return dynamic_tool_call(session, {**item, "call_id": item.get("id")})


def item_image_view(session: Session, item: Payload) -> list[Item]:
    return view_image(session, {**item, "call_id": item.get("id")})


def item_image_generation(session: Session, item: Payload) -> list[Item]:
    return image_generation(session, item, TURN_ITEM)


def item_web_search(session: Session, item: Payload) -> list[Item]:
    return _web_search(session, TURN_ITEM, item, text_of(item, "id"))


def item_extension(session: Session, item: Payload) -> list[Item]:
    """Tools that extensions of Codex bring: so far, searching the web and waiting."""
    if isinstance(item.get("action"), dict):
        return item_web_search(session, item)
    if "duration_ms" in item:
        return []
    return [session.event(EventType.UNKNOWN, as_json(item))]


def item_collab(session: Session, item: Payload) -> list[Item]:
    receivers = item.get("receiver_thread_ids")
    child = receivers[0] if isinstance(receivers, list) and receivers and isinstance(receivers[0], str) else None
    tool = {"spawnAgent": "spawn_agent", "sendInput": "send_input", "wait": "wait_agent"}.get(str(item.get("tool")))
    call_id, spawned = text_of(item, "id"), child if tool == "spawn_agent" else None
    items = _report(
        session,
        call_id,
        tool or str(item.get("tool")),
        {"prompt": item.get("prompt")},
        Output(as_json(item.get("agents_states"))),
        {"child_session": spawned} if spawned else None,
    )
    return [*items, About(session=spawned, parent_call=call_id)] if spawned else items


def item_sub_agent(session: Session, item: Payload) -> list[Item]:
    return sub_agent_activity(session, {**item, "event_id": item.get("id")})
