from __future__ import annotations

import json
import logging
import socket as sockets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from backstory.faces.http.iii import calls as triggers

from .conftest import Running

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": 1}


class Client:
    """A client that speaks in frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.hello = self.receive()
        self.id: str = self.hello["worker_id"]

    def send(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def receive(self) -> Any:
        return json.loads(self.socket.recv(60))

    def call(self, function_id: str, data: Any = None, **fields: Any) -> Any:
        self.send("invokefunction", invocation_id="call", function_id=function_id, data=data, **fields)
        return self.receive()

    def sync(self) -> None:
        """Returns when everything sent so far was handled, and nothing else came back."""
        self.send("ping")
        assert self.receive() == {"type": "pong"}


@pytest.fixture
def connect_client(server: Running) -> Iterator[Callable[[], Client]]:
    with ExitStack() as stack:
        yield lambda: Client(stack.enter_context(connect(server.ws_url, max_size=None)))


@pytest.fixture
def client(connect_client: Callable[[], Client]) -> Client:
    return connect_client()


@pytest.fixture
def other(connect_client: Callable[[], Client]) -> Client:
    return connect_client()


class TestConnection:
    """A client is greeted with its id, pings are answered, and nonsense does not end the connection."""

    def test_greeting(self, client: Client, other: Client) -> None:
        assert client.hello["type"] == "workerregistered"
        assert client.id != other.id

    def test_ping(self, client: Client) -> None:
        client.sync()

    def test_unknown_frames_are_ignored_with_one_warning(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "backstory"):
            for _ in range(3):
                client.send("registerservice", id="x", name="y")
            client.sync()
        assert [record.getMessage().count("registerservice") for record in caplog.records] == [1]

    def test_malformed_frames_are_ignored(self, client: Client) -> None:
        for text in [
            "",
            "not json",
            "[]",
            "null",
            '"ping"',
            "{}",
            '{"type": 7}',
            '{"type": "PING"}',
            '{"type": "registerfunction"}',
            '{"type": "registerfunction", "id": {}}',
            '{"type": "invokefunction", "function_id": []}',
            '{"type": "registertrigger", "id": "t"}',
            '{"type": "invokefunction", "function_id": "f", "data": ' + "[" * 100_000 + "]" * 100_000 + "}",
            '{"type": "ping", "x": "\\ud800"}',
            "{" * 50_000,
        ]:
            client.socket.send(text)
            client.sync()

    def test_binary_messages_are_ignored(self, client: Client) -> None:
        client.socket.send(b"OTLP{}")
        client.sync()

    def test_telemetry_has_a_connection_of_its_own(self, server: Running) -> None:
        """An SDK that is refused there tries again for ever, with a warning each time."""
        with connect(f"{server.ws_url}/otel") as socket:
            for prefix in (b"OTLP", b"LOGS", b"MTRC"):
                socket.send(prefix + b'{"resourceSpans": []}')
            assert socket.ping().wait(60)

    def test_a_malformed_call_is_answered(self, client: Client) -> None:
        client.send("invokefunction", invocation_id="1", function_id=7, data={})
        answer = client.receive()
        assert answer["invocation_id"] == "1"
        assert answer["error"]["code"] == "invocation_failed"

    def test_a_deeply_nested_call_is_answered(self, client: Client) -> None:
        for depth in [900, 1500, 100_000]:
            for ids_first in [True, False]:
                ids = '"invocation_id": "deep", "function_id" : "session::append"'
                data = f'"data": {{"type": "x", "message": {"[" * depth}{"]" * depth}, "invocation_id": "inner"}}'
                fields = f"{ids}, {data}" if ids_first else f"{data}, {ids}"
                client.socket.send(f'{{"type":"invokefunction", {fields}}}')
                answer = client.receive()
                assert (answer["type"], answer["invocation_id"]) == ("invocationresult", "deep")
                assert answer["function_id"] == "session::append"
                assert answer["error"]["message"].startswith("session/")
                client.sync()

    @pytest.mark.parametrize("value", ['"\\ud83d"', '"cut \\ud83d here"', "NaN", "-Infinity"])
    def test_a_call_that_is_not_quite_json_is_answered(self, client: Client, value: str) -> None:
        """SDKs write half a character and NaN as they are; their callers would wait for the whole timeout."""
        ids = '"invocation_id": "1", "function_id": "session::create"'
        client.socket.send(f'{{"type": "invokefunction", {ids}, "data": {{"title": {value}}}}}')
        answer = client.receive()
        assert (answer["invocation_id"], answer["function_id"]) == ("1", "session::create")
        assert answer["error"]["code"] == "invocation_failed"
        assert answer["error"]["message"].startswith("session/invalid_request: ")
        client.sync()

    def test_a_huge_frame_ends_the_connection(self, server: Running, client: Client, other: Client) -> None:
        with suppress(ConnectionClosed):
            client.socket.send("x" * (64 * 1024 * 1024 + 1))
        with pytest.raises(ConnectionClosed):
            client.receive()
        other.sync()


class TestOwnFunctions:
    """The session functions answer calls; errors have no details of this machine."""

    def test_call(self, client: Client) -> None:
        answer = client.call("session::create", {"session_id": "s_1"})
        assert answer == {
            "type": "invocationresult",
            "invocation_id": "call",
            "function_id": "session::create",
            "result": {"session_id": "s_1"},
        }

    def test_null_is_a_result(self, client: Client) -> None:
        assert client.call("session::get", {})["result"] is None

    def test_errors_carry_the_contracts_code(self, client: Client) -> None:
        error = client.call("session::append", {"session_id": "s_0", "message": MESSAGE})["error"]
        assert error == {"code": "invocation_failed", "message": "session/not_found: no session s_0"}

    def test_unexpected_errors_tell_nothing(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        error = client.call("session::store::put-meta", {})["error"]
        assert error["code"] == "invocation_failed"
        assert "secret" not in error["message"]
        assert "secret" in caplog.text

    def test_data_that_is_no_object(self, client: Client) -> None:
        assert client.call("session::create")["error"]["message"].startswith("session/invalid_request")

    def test_an_unknown_function(self, client: Client) -> None:
        assert client.call("session::nothing")["error"]["code"] == "function_not_found"

    def test_a_call_without_id_gets_no_reply(self, client: Client, server: Running) -> None:
        client.send("invokefunction", function_id="session::create", data={"session_id": "s_1"})
        client.send("invokefunction", function_id="session::append", data={"session_id": "s_0", "message": MESSAGE})
        client.send("invokefunction", function_id="no::such", data={})
        assert client.call("session::append", {"session_id": "s_1", "message": MESSAGE})["result"]

    def test_a_void_call_gets_no_reply(self, client: Client) -> None:
        client.send(
            "invokefunction", invocation_id="v", function_id="session::create", data={}, action={"type": "void"}
        )
        client.sync()

    def test_queues_are_refused(self, client: Client) -> None:
        answer = client.call("session::create", {}, action={"type": "enqueue", "queue": "q"})
        assert answer["error"]["code"] == "enqueue_error"

    def test_cannot_be_taken_over(self, client: Client, other: Client) -> None:
        other.send("registerfunction", id="session::create")
        assert other.receive()["code"] == "FUNCTION_NAMESPACE_CONFLICT"
        assert client.call("session::create", {})["result"]

    def test_many_calls_at_once_are_all_answered(self, client: Client) -> None:
        for number in range(500):
            client.send("invokefunction", invocation_id=str(number), function_id="session::create", data={})
        assert {client.receive()["invocation_id"] for _ in range(500)} == {str(n) for n in range(500)}


class TestClientsFunctions:
    """A function one client registered can be called by every other one."""

    def test_call_and_result(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="math::add", description="adds")
        client.sync()
        data = {"a": 1, "big": 12345678901234567890, "float": 1.0}
        other.send("invokefunction", invocation_id="mine", function_id="math::add", data=data, metadata={"m": 1})
        asked = client.receive()
        assert asked["type"] == "invokefunction"
        assert asked["data"] == data
        assert asked["metadata"] == {"m": 1}
        client.send("invocationresult", invocation_id=asked["invocation_id"], function_id="math::add", result=3)
        answer = other.receive()
        assert (answer["invocation_id"], answer["result"]) == ("mine", 3)

    def test_errors_pass_through(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="f")
        client.sync()
        other.send("invokefunction", invocation_id="1", function_id="f", data={})
        error = {"code": "invocation_failed", "message": "no"}
        client.send("invocationresult", invocation_id=client.receive()["invocation_id"], function_id="f", error=error)
        assert other.receive()["error"] == error

    def test_void(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="f")
        client.sync()
        other.send("invokefunction", function_id="f", data=1, action={"type": "void"})
        assert "invocation_id" not in client.receive()

    def test_ids_chosen_alike_do_not_mix(self, connect_client: Callable[[], Client], client: Client) -> None:
        client.send("registerfunction", id="echo")
        client.sync()
        callers = [connect_client() for _ in range(3)]
        for number, caller in enumerate(callers):
            caller.send("invokefunction", invocation_id="same", function_id="echo", data=number)
        for _ in callers:
            asked = client.receive()
            client.send("invocationresult", invocation_id=asked["invocation_id"], result=asked["data"])
        assert [caller.receive()["result"] for caller in callers] == [0, 1, 2]

    def test_nobody_else_can_answer(self, client: Client, other: Client, connect_client: Callable[[], Client]) -> None:
        client.send("registerfunction", id="f")
        client.sync()
        other.send("invokefunction", invocation_id="1", function_id="f", data={})
        asked = client.receive()
        intruder = connect_client()
        intruder.send("invocationresult", invocation_id=asked["invocation_id"], result="forged")
        intruder.sync()
        client.send("invocationresult", invocation_id=asked["invocation_id"], result="true")
        assert other.receive()["result"] == "true"

    def test_unregistered_is_unknown(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="f")
        client.send("unregisterfunction", id="f")
        client.send("unregisterfunction", id="f")
        client.sync()
        assert other.call("f")["error"]["code"] == "function_not_found"

    def test_of_a_vanished_client_fail_at_once(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="f")
        client.sync()
        other.send("invokefunction", invocation_id="1", function_id="f", data={})
        client.receive()
        client.socket.close()
        assert other.receive()["error"]["code"] == "invocation_stopped"
        assert other.call("f")["error"]["code"] == "function_not_found"

    def test_the_newest_answers_and_the_older_takes_over(self, client: Client, other: Client) -> None:
        for worker in (client, other):
            worker.send("registerfunction", id="f")
            worker.sync()
        client.send("invokefunction", function_id="f", data="first")
        assert other.receive()["data"] == "first"
        other.socket.close()
        while (asked := _ask(client, "f")) is None:
            pass
        assert asked["data"] == "probe"


def _ask(client: Client, function_id: str) -> Any:
    """Call until the call comes back to the client itself: the server has seen that the other is gone."""
    client.send("invokefunction", invocation_id="p", function_id=function_id, data="probe")
    answer = client.receive()
    return answer if answer["type"] == "invokefunction" else None


class TestOwnTriggerTypes:
    """A binding calls its function for every event that matches."""

    def bind(self, client: Client, config: Any = None, function_id: str = "ui::on", **fields: Any) -> Any:
        client.send(
            "registertrigger",
            id="t",
            trigger_type="session::message-added",
            function_id=function_id,
            config=config,
            **fields,
        )
        return client.receive()

    def test_events_arrive(self, client: Client, other: Client) -> None:
        client.send("registerfunction", id="ui::on")
        assert self.bind(client, {"session_id": "s_1"}, metadata={"k": "v"}) == {
            "type": "triggerregistrationresult",
            "id": "t",
            "trigger_type": "session::message-added",
            "function_id": "ui::on",
        }
        for session_id in ("s_0", "s_1"):
            other.call("session::create", {"session_id": session_id})
            other.call("session::append", {"session_id": session_id, "message": MESSAGE})
        event = client.receive()
        assert event["type"] == "invokefunction"
        assert event["function_id"] == "ui::on"
        assert event["data"]["session_id"] == "s_1"
        assert event["metadata"] == {"k": "v"}
        assert "invocation_id" not in event
        client.sync()

    def test_a_bad_config_is_rejected(self, client: Client, server: Running) -> None:
        answer = self.bind(client, {"colour": "red"})
        assert answer["error"]["code"] == "trigger_registration_failed"
        assert answer["error"]["message"].startswith("session/invalid_request: ")
        assert server.live.bindings == {}

    def test_unregister_ends_it(self, client: Client, server: Running) -> None:
        self.bind(client)
        client.send("unregistertrigger", id="t")
        client.send("unregistertrigger", id="unknown")
        client.sync()
        assert server.live.bindings == {}

    def test_the_same_id_again_replaces_it(self, client: Client, server: Running) -> None:
        self.bind(client)
        self.bind(client, {"session_id": "s_1"})
        assert len(server.live.bindings) == 1

    def test_end_with_their_client(self, client: Client, other: Client, server: Running) -> None:
        self.bind(client)
        self.bind(other)
        assert len(server.live.bindings) == 2
        client.socket.close()
        while len(server.live.bindings) == 2:
            other.sync()

    def test_two_copies_of_an_app_each_get_their_own(self, client: Client, other: Client, server: Running) -> None:
        for app in (client, other):
            app.send("registerfunction", id="ui::on")
            self.bind(app)
        server.call("session::create", {"session_id": "s_1"})
        server.call("session::append", {"session_id": "s_1", "message": MESSAGE})
        for app in (client, other):
            assert app.receive()["function_id"] == "ui::on"
            app.sync()

    def test_may_call_the_function_of_another_client(self, client: Client, other: Client, server: Running) -> None:
        other.send("registerfunction", id="elsewhere")
        other.sync()
        self.bind(client, function_id="elsewhere")
        server.call("session::create", {"session_id": "s_1"})
        server.call("session::append", {"session_id": "s_1", "message": MESSAGE})
        assert other.receive()["function_id"] == "elsewhere"

    def test_may_be_bound_before_the_function_exists(self, client: Client, server: Running) -> None:
        self.bind(client)
        server.call("session::create", {"session_id": "s_1"})
        server.call("session::append", {"session_id": "s_1", "message": MESSAGE})
        client.send("registerfunction", id="ui::on")
        client.sync()
        server.call("session::append", {"session_id": "s_1", "message": MESSAGE | {"timestamp": 2}})
        assert client.receive()["data"]["message"]["timestamp"] == 2

    def test_cannot_be_taken_over(self, client: Client, other: Client, server: Running) -> None:
        other.send("registertriggertype", id="session::message-added", description="mine")
        other.sync()
        self.bind(client)
        assert len(server.live.bindings) == 1


class TestClientsTriggerTypes:
    """A trigger type one client provides can be bound by the others; the provider decides about each binding."""

    def bind(self, client: Client, id: str = "t") -> None:
        client.send(
            "registertrigger", id=id, trigger_type="cron", function_id="f", config={"at": "noon"}, metadata={"k": 1}
        )

    def provide(self, client: Client) -> None:
        client.send("registertriggertype", id="cron", description="time")

    def test_bindings_go_to_the_provider(self, client: Client, other: Client) -> None:
        self.provide(client)
        client.sync()
        self.bind(other)
        assert client.receive() == {
            "type": "registertrigger",
            "id": "t",
            "trigger_type": "cron",
            "function_id": "f",
            "config": {"at": "noon"},
            "metadata": {"k": 1},
        }
        client.send("triggerregistrationresult", id="t", trigger_type="cron", function_id="f")
        answer = other.receive()
        assert answer["type"] == "triggerregistrationresult"
        assert "error" not in answer

    def test_a_silent_provider_is_asked_again_until_it_answers(
        self, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(triggers, "REMINDERS", (0.02, 60.0))
        self.provide(client)
        client.sync()
        self.bind(other)
        assert client.receive() == client.receive()
        client.send("triggerregistrationresult", id="t")
        assert other.receive()["id"] == "t"

    def test_a_refusal_reaches_the_binder(self, client: Client, other: Client) -> None:
        self.provide(client)
        client.sync()
        self.bind(other)
        client.receive()
        error = {"code": "trigger_registration_failed", "message": "no such time"}
        client.send("triggerregistrationresult", id="t", trigger_type="cron", function_id="f", error=error)
        assert other.receive()["error"] == error
        other.send("unregistertrigger", id="t")
        other.sync()
        client.sync()

    def test_a_binding_waits_for_its_provider(self, client: Client, other: Client) -> None:
        self.bind(other)
        other.sync()
        self.provide(client)
        assert client.receive()["type"] == "registertrigger"

    def test_a_binding_waits_for_its_provider_to_come_back(
        self, connect_client: Callable[[], Client], client: Client, other: Client
    ) -> None:
        self.provide(client)
        client.sync()
        self.bind(other)
        client.receive()
        client.socket.close()
        again = connect_client()
        self.provide(again)
        assert again.receive()["id"] == "t"
        again.send("unregistertriggertype", id="cron")
        again.sync()
        self.provide(again)
        assert again.receive()["id"] == "t"

    def test_unbinding_is_told_to_the_provider(self, client: Client, other: Client) -> None:
        self.provide(client)
        client.sync()
        self.bind(other)
        client.receive()
        other.send("unregistertrigger", id="t", trigger_type="cron")
        assert client.receive()["type"] == "unregistertrigger"
        self.bind(other)
        client.receive()
        other.socket.close()
        assert client.receive()["type"] == "unregistertrigger"

    def test_an_unbound_binding_does_not_come_back(self, client: Client, other: Client) -> None:
        self.bind(other)
        other.send("unregistertrigger", id="t")
        other.sync()
        self.provide(client)
        client.sync()

    def test_the_newest_provider_takes_over(self, connect_client: Callable[[], Client], client: Client) -> None:
        self.provide(client)
        client.sync()
        binder, newer = connect_client(), connect_client()
        self.bind(binder)
        assert client.receive()["type"] == "registertrigger"
        self.provide(newer)
        assert client.receive()["type"] == "unregistertrigger"
        assert newer.receive()["type"] == "registertrigger"

    def test_binders_may_choose_the_same_id(self, connect_client: Callable[[], Client], client: Client) -> None:
        self.provide(client)
        client.sync()
        first, second = connect_client(), connect_client()
        self.bind(first)
        one = client.receive()
        self.bind(second)
        two = client.receive()
        assert one["id"] != two["id"]
        client.send("triggerregistrationresult", id=two["id"], error={"code": "no", "message": "no"})
        assert second.receive()["id"] == "t"
        first.sync()

    def test_the_provider_fires_by_calling(self, client: Client, other: Client) -> None:
        self.provide(client)
        client.sync()
        other.send("registerfunction", id="f")
        self.bind(other)
        bound = client.receive()
        client.send("invokefunction", function_id=bound["function_id"], data={"now": 1}, action={"type": "void"})
        assert other.receive()["data"] == {"now": 1}


class TestReattach:
    """A client that is back before its old connection was seen to end gets nothing twice."""

    def test_retires_the_old_connection(self, client: Client, other: Client, server: Running) -> None:
        client.send("registerfunction", id="f")
        client.send("registertrigger", id="t", trigger_type="session::created", function_id="f", config={})
        client.receive()
        token = client.hello["reattach_token"]
        other.send("reattach", previous_worker_id=client.id, reattach_token=token)
        other.sync()
        assert server.live.bindings == {}
        with pytest.raises(ConnectionClosed):
            client.receive()

    @pytest.mark.parametrize("token", [None, "", "wrong", "ä"])
    def test_needs_the_token(self, client: Client, other: Client, token: str | None) -> None:
        other.send("reattach", previous_worker_id=client.id, reattach_token=token)
        other.send("reattach", previous_worker_id="unknown", reattach_token=token)
        other.send("reattach", previous_worker_id=other.id, reattach_token=token)
        other.sync()
        client.sync()


class TestEngineFunctions:
    """The functions that the SDKs expect of an engine: workers, functions, triggers."""

    def test_workers(self, client: Client) -> None:
        client.send("invokefunction", function_id="engine::workers::register", data={"name": "app", "runtime": "x"})
        workers = client.call("engine::workers::list", {})["result"]["workers"]
        assert [worker["name"] for worker in workers] == ["backstory", "app"]

    def test_functions(self, client: Client) -> None:
        client.send("registerfunction", id="f", description="mine", request_format={"type": "object"})
        functions = client.call("engine::functions::list", {})["result"]["functions"]
        by_id = {function["function_id"]: function for function in functions}
        assert by_id["f"]["request_format"] == {"type": "object"}
        assert by_id["session::create"]["worker_name"] == "backstory"

    def test_triggers(self, client: Client) -> None:
        client.send("registertriggertype", id="cron", description="time")
        client.send("registertrigger", id="t", trigger_type="elsewhere", function_id="f", config={"a": 1})
        types = client.call("engine::triggers::list", {})["result"]["triggers"]
        assert {"session::created", "cron"} <= {kind["id"] for kind in types}
        bound = client.call("engine::registered-triggers::list", {})["result"]["registered_triggers"]
        assert [(trigger["id"], trigger["config"]) for trigger in bound] == [("t", {"a": 1})]


class TestSlowClients:
    """A client that does not read costs a bounded amount of memory and does not delay others."""

    @pytest.fixture
    def deaf(self, server: Running) -> Iterator[Client]:
        sock = sockets.socket()
        sock.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        with connect(server.ws_url, sock=sock, max_queue=1, close_timeout=0.1) as socket:
            yield Client(socket)

    def test_events_wait_for_it_and_others_get_theirs(self, deaf: Client, client: Client, server: Running) -> None:
        for subscriber in (deaf, client):
            subscriber.send("registerfunction", id="on")
            subscriber.send(
                "registertrigger", id="t", trigger_type="session::message-added", function_id="on", config={}
            )
            subscriber.receive()
        server.call("session::create", {"session_id": "s"})
        big = MESSAGE | {"content": [{"type": "text", "text": "x" * 1_000_000}]}
        for _ in range(40):
            server.call("session::append", {"session_id": "s", "message": big})
            assert client.receive()["type"] == "invokefunction"
        waiting = [bound[2].qsize() for key, bound in server.live.bindings.items() if key.startswith(deaf.id)]
        assert waiting[0] > 25  # megabytes that wait in the log, and not in the memory of this server
        for _ in range(40):
            assert deaf.receive()["type"] == "invokefunction"

    def test_calls_to_it_are_refused_when_it_falls_behind(self, deaf: Client, client: Client) -> None:
        deaf.send("registerfunction", id="f")
        deaf.sync()
        data = "x" * 1_000_000
        for number in range(40):
            client.send("invokefunction", invocation_id=str(number), function_id="f", data=data)
        client.send("ping")
        answers = []
        while (answer := client.receive())["type"] != "pong":
            answers.append(answer)
        assert 10 < len(answers) < 40
        assert all("does not keep up" in answer["error"]["message"] for answer in answers)

    def test_a_caller_that_does_not_read_answers_is_not_read_either(self, deaf: Client, client: Client) -> None:
        client.send("registerfunction", id="big")
        client.sync()
        for number in range(30):
            deaf.send("invokefunction", invocation_id=str(number), function_id="big", data={})
        result = "x" * 1_000_000
        for _ in range(30):
            asked = client.receive()
            client.send("invocationresult", invocation_id=asked["invocation_id"], result=result)
        client.sync()
        with pytest.raises(ConnectionClosed):
            deque((deaf.receive() for _ in range(31)), maxlen=0)
