"""The Attach stream: opening, callbacks, reconnection and the end."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import grpc
import pytest

from copilot_grpc import (
    Client,
    Disconnected,
    ParticipantExpired,
    Reconnected,
    SessionClosed,
    ToolCall,
    ToolError,
    ToolResult,
    _participant,
    answers,
    permission,
    tool,
)
from copilot_grpc._await import within
from copilot_grpc._link import Link
from copilot_grpc._participant import Participant
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.errors import SessionExists, ToolNameInvalid, Unauthenticated

from .fake import Attached, Fake, connected, permission_callback, position, refuse, soon, tool_callback


@tool
def weather(city: str, days: int = 1) -> str:
    """Tells the weather."""
    return f"rain in {city} for {days}"


async def opened(fake: Fake, opening: Any) -> tuple[Attached, Any]:
    """Opens a session against the test's server."""
    task = asyncio.ensure_future(opening)
    stream = await fake.attached()
    return stream, await soon(task)


async def test_first_frame_declares_everything() -> None:
    async with connected(name="tests") as (fake, client):
        opening = client.create_session(
            tools=[weather], on_permission=permission.approve_all, on_user_input=lambda request: "yes",
            hooks={"pre_tool_use": lambda hook: None}, on_request={"new.thing": lambda request: {}},
            model="m1", grace=7, session_id="given", callback_timeout=2,
        )  # fmt: skip
        stream, session = await opened(fake, opening)
        start = stream.request
        assert start.create.session_id == "given" and start.create.config.model == "m1"
        assert start.create.request_id and start.create.callback_timeout.seconds == 2
        assert start.name == "tests" and start.grace.seconds == 7 and start.filter.exclude_all
        assert [definition.name for definition in start.tools] == ["weather"]
        kinds = bridge.CallbackKind
        assert list(start.handlers.kinds) == [kinds.CALLBACK_KIND_USER_INPUT, kinds.CALLBACK_KIND_HOOK]
        assert start.handlers.permission and list(start.handlers.hook_types) == ["preToolUse"]
        assert list(start.handlers.methods) == ["new.thing"]
        assert session.id == "s1" and session.participant_id == "p1" and str(session.position) == "1/3"


async def test_opening_fails_with_the_servers_reason() -> None:
    async with connected() as (fake, client):

        async def refuse_attach(requests: Any, context: Any) -> None:
            await refuse(context, grpc.StatusCode.ALREADY_EXISTS, "SESSION_EXISTS", "there is one", field="create")

        fake.streams["Attach"] = refuse_attach
        with pytest.raises(SessionExists, match="there is one") as caught:
            await client.create_session()
        assert caught.value.field == "create" and caught.value.metadata["session_id"] == "s1"


async def test_opening_is_repeated_with_the_same_request_id() -> None:
    async with connected() as (fake, client):
        task = asyncio.ensure_future(client.create_session())
        first = await soon(fake.attaches.get())
        first.end(grpc.StatusCode.UNAVAILABLE)
        second = await fake.attached()
        await soon(task)
        assert first.request.create.request_id == second.request.create.request_id


async def test_opening_is_cancelled_with_its_task() -> None:
    async with connected() as (fake, client):
        task = asyncio.ensure_future(client.create_session())
        stream = await soon(fake.attaches.get())
        task.cancel()
        await soon(stream.gone.wait())
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_options_are_checked() -> None:
    async with connected() as (_, client):
        with pytest.raises(TypeError, match="on_permision"):
            await client.create_session(on_permision=True)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="decorate the function"):
            await client.create_session(tools=[print])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="two tools"):
            await client.create_session(tools=[weather, weather])


async def test_tool_results() -> None:
    @tool("fail")
    async def fail(how: str, call: ToolCall) -> object:
        if how == "text":
            raise ToolError(f"no {call.tool_call_id}")
        if how == "secret":
            raise RuntimeError("/home/secret")
        if how == "denied":
            return ToolResult.denied("not here")
        if how == "binary":
            return ToolResult.binary(b"png", mime_type="image/png", text="a map")
        return {"none": None, "json": {"a": [1, "ü"]}, "bad": {"x": object()}, "nan": float("nan")}[how]

    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather, fail]))

        async def call(name: str, arguments: str) -> bridge.ToolAnswer:
            await stream.ask(tool_callback("c", name, arguments))
            answer = await stream.answer()
            await stream.done("c")
            assert answer.callback_id == "c"
            return answer.answer.tool

        assert (await call("weather", '{"city": "Paris"}')).text == "rain in Paris for 1"
        missing = (await call("weather", '{"days": "x"}')).result
        assert missing.result_type == "failure"
        assert missing.text_result_for_llm.startswith("The arguments do not fit: city: is missing")
        assert "days: expected an integer, got a string" in missing.text_result_for_llm
        broken = (await call("weather", "{")).result
        assert broken.text_result_for_llm.startswith("The arguments do not fit: they are not valid JSON")
        assert (await call("fail", '{"how": "text"}')).result.text_result_for_llm == "no t1"
        secret = await call("fail", '{"how": "secret"}')
        assert secret == answers.tool(ToolResult("The tool failed.", "failure", "/home/secret")).tool
        denied = (await call("fail", '{"how": "denied"}')).result
        assert (denied.text_result_for_llm, denied.result_type) == ("not here", "denied")
        binary = (await call("fail", '{"how": "binary"}')).result
        assert binary.binary_results_for_llm[0].data == b"png" and binary.text_result_for_llm == "a map"
        assert (await call("fail", '{"how": "none"}')).text == "Done."
        assert (await call("fail", '{"how": "json"}')).text == '{"a": [1, "ü"]}'
        for how, error in (("bad", "JSON cannot hold"), ("nan", "not JSON compliant")):
            odd = (await call("fail", json.dumps({"how": how}))).result
            assert odd.text_result_for_llm == "The tool ran, but its result cannot be encoded as JSON."
            assert odd.result_type == "failure" and error in odd.error


async def test_a_blocked_handler_holds_up_nothing() -> None:
    release = threading.Event()

    @tool
    def block() -> str:
        """Blocks its thread."""
        release.wait()
        return "late"

    async with connected() as (fake, client):
        opening = client.create_session(tools=[block, weather], on_permission=permission.approve_all)
        stream, _ = await opened(fake, opening)
        await stream.ask(tool_callback("slow", "block"))
        await stream.ask(tool_callback("quick", "weather", '{"city": "Oslo"}'))
        assert (await stream.answer()).callback_id == "quick"
        await stream.ask(permission_callback("p"))
        assert (await stream.answer()).callback_id == "p"
        release.set()
        assert (await stream.answer()).answer.tool.text == "late"


async def test_tools_are_bounded_and_questions_are_not_held_up() -> None:
    running: asyncio.Queue[str] = asyncio.Queue()
    release = asyncio.Event()

    @tool
    async def wait(name: str) -> str:
        """Waits."""
        running.put_nowait(name)
        await release.wait()
        return name

    async with connected() as (fake, client):
        stream, _ = await opened(
            fake,
            client.create_session(tools=[wait], max_concurrent_tools=1, on_permission=permission.approve_all),
        )
        await stream.ask(tool_callback("a", "wait", '{"name": "a"}'))
        await stream.ask(tool_callback("b", "wait", '{"name": "b"}'))
        assert await soon(running.get()) == "a"
        await stream.ask(permission_callback("p"))
        assert (await stream.answer()).callback_id == "p"
        assert running.empty()
        release.set()
        assert {(await stream.answer()).callback_id for _ in range(2)} == {"a", "b"}


async def test_withdrawn_callback_cancels_its_handler() -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Waits."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[wait, weather]))
        await stream.ask(tool_callback("c", "wait"))
        await soon(entered.wait())
        outcome = bridge.CallbackOutcome.CALLBACK_OUTCOME_WITHDRAWN
        await stream.tell(callback_resolved=bridge.CallbackResolved(callback_id="c", outcome=outcome))
        await soon(ended.wait())
        await stream.ask(tool_callback("d", "weather", '{"city": "Rome"}'))
        assert (await stream.answer()).callback_id == "d"


async def test_reattach_returns_with_the_token_and_repeats_the_kept_answer() -> None:
    runs = 0
    changes: list[object] = []

    @tool
    async def count() -> str:
        """Counts its calls."""
        nonlocal runs
        runs += 1
        return f"run {runs}"

    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[count], on_connection=changes.append))
        await stream.ask(tool_callback("c", "count"))
        assert (await stream.answer()).answer.tool.text == "run 1"
        stream.end(grpc.StatusCode.UNAVAILABLE)  # before it has acknowledged the answer
        second = await fake.attached(tool_callback("c", "count", participant_ids=["p1"]))
        assert second.request.participant_token == "secret" and second.request.join_session_id == "s1"
        assert second.request.after == position(1, 3) and second.request.tools[0].name == "count"
        assert (await second.answer()).answer.tool.text == "run 1"
        await second.done("c")
        # The server's copy of the callback that it has just resolved: nothing runs again.
        await second.ask(tool_callback("d", "count"))
        assert (await second.answer()).answer.tool.text == "run 2"
        assert isinstance(changes[0], Disconnected) and changes[1:] == [Reconnected("p1")]


async def test_a_write_that_fails_before_the_reading_does_waits_for_the_next_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = asyncio.Event()
    send = Link.send_now

    async def fail_once(self: Link, frame: bridge.AttachRequest) -> None:
        if frame.HasField("answer") and not failed.is_set():
            failed.set()
            self.down()
        else:
            await send(self, frame)

    monkeypatch.setattr(Link, "send_now", fail_once)
    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        await stream.ask(tool_callback("c", "weather", '{"city": "Rome"}'))
        await soon(failed.wait())
        stream.end(grpc.StatusCode.UNAVAILABLE)
        second = await fake.attached(tool_callback("c", "weather", participant_ids=["p1"]))
        assert (await second.answer()).answer.tool.text == "rain in Rome for 1"


async def test_doubled_callback_runs_once() -> None:
    release = asyncio.Event()
    runs = 0

    @tool
    async def count() -> int:
        """Counts its calls."""
        nonlocal runs
        runs += 1
        await release.wait()
        return runs

    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[count, weather]))
        await stream.ask(tool_callback("c", "count"))
        await stream.ask(tool_callback("c", "count"))
        await stream.ask(tool_callback("d", "weather", '{"city": "Bern"}'))
        assert (await stream.answer()).callback_id == "d"
        release.set()
        assert (await stream.answer()).answer.tool.text == "1"


@pytest.mark.parametrize("code", ["CANCELLED", "INTERNAL", "UNKNOWN", "ABORTED", "UNAVAILABLE"])
async def test_a_status_without_a_reason_is_a_broken_connection(code: str) -> None:
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())
        stream.end(grpc.StatusCode[code])
        await fake.attached()
        assert session.ended is None


async def test_a_cancellation_is_not_lost_when_the_result_arrives() -> None:
    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(60, result))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    result.set_result(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, asyncio.Event().wait())
    assert await within(60, asyncio.sleep(0, 2)) == 2


async def test_a_session_is_closed_just_as_its_next_stream_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closing: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())
        dial = Participant._dial

        async def dial_and_close(self: Participant, start: bridge.AttachStart) -> tuple[Link, bridge.AttachStarted]:
            result = await dial(self, start)
            closing.put_nowait(asyncio.create_task(session.close()))
            return result

        monkeypatch.setattr(Participant, "_dial", dial_and_close)
        stream.end(grpc.StatusCode.UNAVAILABLE)
        second = await soon(fake.attaches.get())
        await second.start()
        await within(10, await soon(closing.get()))  # the server would be missed only after 60 s


async def test_expired_participant_joins_again() -> None:
    changes: list[object] = []
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session(on_connection=changes.append))

        async def refuse_once(requests: Any, context: Any) -> None:
            del fake.streams["Attach"]
            await refuse(context, grpc.StatusCode.NOT_FOUND, "PARTICIPANT_NOT_FOUND", "expired")

        fake.streams["Attach"] = refuse_once
        stream.end(grpc.StatusCode.UNAVAILABLE)
        second = await fake.attached(participant_id="p2")
        assert second.request.participant_token == ""
        while len(changes) < 3:
            await asyncio.sleep(0)
        assert changes[1:] == [ParticipantExpired("p1"), Reconnected("p2")]
        assert session.participant_id == "p2"


async def broken(fake: Fake, client: Client, stream: Attached) -> None:
    """Breaks a stream, and lets all further ones fail."""

    async def cut(requests: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    fake.streams["Attach"] = cut
    stream.end(grpc.StatusCode.UNAVAILABLE)
    [session] = client._sessions
    assert session._participant is not None
    while session._participant._link is not None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("failures", [0, 3])
async def test_a_close_without_a_stream_leaves_by_a_call(failures: int) -> None:
    requests: list[bridge.LeaveRequest] = []

    async def leave(request: bridge.LeaveRequest, context: Any) -> bridge.LeaveResponse:
        requests.append(request)
        if len(requests) <= failures:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return bridge.LeaveResponse()

    async with connected() as (fake, client):
        fake.unary["Leave"] = leave
        stream, session = await opened(fake, client.create_session(tools=[weather]))
        await broken(fake, client, stream)
        await soon(session.close())
        await soon(session.close())
        assert requests == [bridge.LeaveRequest(session_id="s1", participant_token="secret")] * (failures + 1)
        assert isinstance(session.ended, SessionClosed) and session.ended.cause == "closed"


async def test_a_goodbye_that_is_cut_off_is_repeated_by_a_call() -> None:
    left = asyncio.Event()

    def leave(*_: Any) -> bridge.LeaveResponse:
        left.set()
        return bridge.LeaveResponse()

    async with connected() as (fake, client):
        fake.unary["Leave"] = leave
        stream, session = await opened(fake, client.create_session())
        closing = asyncio.ensure_future(session.close())
        assert (await stream.next()).HasField("leave")
        stream.end(grpc.StatusCode.UNAVAILABLE)
        await soon(closing)
        assert left.is_set()


async def test_a_session_that_is_left_over_a_stream_makes_no_call() -> None:
    async with connected() as (fake, client):
        fake.unary["Leave"] = lambda *_: pytest.fail("left twice")
        stream, session = await opened(fake, client.create_session())
        closing = asyncio.ensure_future(session.close())
        await stream.goodbye()
        await soon(closing)


@pytest.mark.parametrize(("timeout", "failures", "told"), [(0.2, 0, "no answer"), (2, 1, "gone")])
async def test_a_close_takes_a_limited_time(
    timeout: float, failures: int, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server fails some calls and does not answer the next. The log tells the last failure."""
    monkeypatch.setattr(_participant, "LEAVE_TIMEOUT", timeout)
    calls = itertools.count(1)

    async def leave(request: bridge.LeaveRequest, context: Any) -> bridge.LeaveResponse:
        if next(calls) <= failures:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        await asyncio.Event().wait()
        return bridge.LeaveResponse()

    async with connected() as (fake, client):
        fake.unary["Leave"] = leave
        stream, session = await opened(fake, client.create_session())
        await broken(fake, client, stream)
        await soon(session.close())
    [record] = [record for record in caplog.records if "not left" in record.getMessage()]
    assert record.levelname == "WARNING" and told in record.getMessage()


@pytest.mark.parametrize("reason", ["SESSION_NOT_FOUND", "PARTICIPANT_NOT_FOUND"])
async def test_a_participant_that_is_gone_has_left(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def leave(request: bridge.LeaveRequest, context: Any) -> None:
        await refuse(context, grpc.StatusCode.NOT_FOUND, reason, "gone")

    async with connected() as (fake, client):
        fake.unary["Leave"] = leave
        stream, session = await opened(fake, client.create_session())
        await broken(fake, client, stream)
        await soon(session.close())
    assert not [record for record in caplog.records if "not left" in record.getMessage()]


async def test_go_away_opens_the_next_stream_before_the_old_one_ends() -> None:
    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        await stream.tell(go_away=bridge.GoAway(reason=bridge.GoAwayReason.GO_AWAY_REASON_CONNECTION_AGE))
        second = await soon(fake.attaches.get())
        assert not stream.gone.is_set()
        await second.start()
        await soon(stream.gone.wait())
        await second.ask(tool_callback("c", "weather", '{"city": "Kyiv"}'))
        assert (await second.answer()).callback_id == "c"


async def test_expired_static_token_ends_the_participation() -> None:
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())

        async def refuse_token(requests: Any, context: Any) -> None:
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "the token has expired")

        fake.streams["Attach"] = refuse_token
        stream.end(grpc.StatusCode.UNAVAILABLE)
        assert isinstance(await soon(session.wait_ended()), Unauthenticated)
        assert isinstance(session.ended, Unauthenticated)


@pytest.mark.parametrize("reason", ["DISCONNECTED", "DELETED", "REPLACED", "UNSHARED"])
async def test_closed_by_the_server(reason: str) -> None:
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())
        value = bridge.CloseReason.Value(f"CLOSE_REASON_{reason}")
        await stream.tell(closed=bridge.SubscriptionClosed(reason=value))
        ended = await soon(session.wait_ended())
        assert isinstance(ended, SessionClosed) and ended.cause == reason.lower()


async def test_close_leaves() -> None:
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())
        closing = asyncio.ensure_future(session.close())
        assert not (await stream.goodbye()).disconnect
        await soon(closing)
        assert isinstance(session.ended, SessionClosed) and session.ended.cause == "closed"
        await session.close()


async def test_disconnect_says_so() -> None:
    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session())
        closing = asyncio.ensure_future(session.disconnect())
        assert (await stream.goodbye()).disconnect
        await soon(closing)


async def test_set_tools() -> None:
    @tool
    def other() -> str:
        """Another one."""
        return "other"

    async with connected() as (fake, client):
        stream, session = await opened(fake, client.create_session(tools=[weather]))
        change = asyncio.ensure_future(session.set_tools([other]))
        command = (await stream.next()).command
        assert [definition.name for definition in command.set_tools.tools] == ["other"]
        await stream.send(bridge.AttachResponse(done=bridge.AttachDone(command_id=command.command_id)))
        await soon(change)
        await stream.ask(tool_callback("a", "weather", '{"city": "x"}'))
        assert (await stream.answer()).answer.HasField("abstain")
        await stream.ask(tool_callback("b", "other"))
        assert (await stream.answer()).answer.tool.text == "other"

        refused = asyncio.ensure_future(session.set_tools([weather]))
        command = (await stream.next()).command
        reason = bridge.ErrorReason.ERROR_REASON_TOOL_NAME_INVALID
        failure = bridge.Failure(code=3, reason=reason, message="bad name")
        await stream.send(
            bridge.AttachResponse(failed=bridge.AttachFailed(command_id=command.command_id, failure=failure))
        )
        with pytest.raises(ToolNameInvalid, match="bad name"):
            await soon(refused)
        await stream.ask(tool_callback("c", "other"))  # the tools before
        assert (await stream.answer()).answer.tool.text == "other"


async def test_refused_answers() -> None:
    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        await stream.ask(tool_callback("c", "weather", '{"city": "x"}'))
        await stream.answer()
        reasons = bridge.ErrorReason
        await stream.failed("c", grpc.StatusCode.UNAVAILABLE, reasons.ERROR_REASON_RUNTIME_LOST, "away")
        assert (await stream.answer()).answer.tool.text == "rain in x for 1"
        await stream.failed("c", grpc.StatusCode.INVALID_ARGUMENT, reasons.ERROR_REASON_ANSWER_INVALID, "wrong")
        assert (await stream.answer()).answer.error.message == "wrong"
        await stream.failed("c", grpc.StatusCode.NOT_FOUND, reasons.ERROR_REASON_CALLBACK_NOT_FOUND, "over")
        await stream.ask(tool_callback("d", "weather", '{"city": "y"}'))
        assert (await stream.answer()).callback_id == "d"


async def test_large_callback_is_read_in_pieces() -> None:
    whole = tool_callback("c", "weather", '{"city": "Large"}').SerializeToString()

    async with connected() as (fake, client):

        async def read(request: bridge.ReadCallbackRequest, context: Any) -> Any:
            assert request.callback_id == "c"
            for at in range(0, len(whole), 10):
                await context.write(bridge.ReadCallbackResponse(chunk=whole[at : at + 10]))

        fake.streams["ReadCallback"] = read
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        kind = bridge.CallbackKind.CALLBACK_KIND_TOOL_CALL
        await stream.ask(bridge.Callback(callback_id="c", session_id="s1", kind=kind, total_bytes=5 << 20))
        assert (await stream.answer()).answer.tool.text == "rain in Large for 1"


async def test_unknown_frames_kinds_and_reasons_are_ignored() -> None:
    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        # A frame, a case of a frame and a kind that this library does not know.
        await stream.send(bridge.AttachResponse.FromString(b"\xfa\x3e\x03new"))
        unknown = bridge.SubscribeResponse.FromString(b"\xfa\x3e\x03new")
        await stream.send(bridge.AttachResponse(stream=unknown))
        await stream.ask(bridge.Callback(callback_id="x", session_id="s1", kind=999))  # type: ignore[arg-type]
        await stream.ask(tool_callback("c", "weather", '{"city": "x"}'))
        assert (await stream.answer()).callback_id == "c"


async def test_callbacks_for_others_are_not_answered() -> None:
    async with connected() as (fake, client):
        stream, _ = await opened(fake, client.create_session(tools=[weather]))
        await stream.ask(permission_callback("p"))  # no handler
        await stream.ask(tool_callback("t", "weather", '{"city": "x"}'), offered=False)
        await stream.ask(tool_callback("c", "weather", '{"city": "x"}'))
        assert (await stream.answer()).callback_id == "c"


async def test_progress_before_the_session_is_open_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "copilot_grpc")
    async with connected() as (fake, client):
        opening = asyncio.ensure_future(client.create_session())
        stream = await soon(fake.attaches.get())
        await stream.send(bridge.AttachResponse(progress=bridge.Progress(detail="installing")))
        await stream.start()
        await soon(opening)
    assert "waiting for the server: installing" in caplog.messages


async def test_answers_of_a_session_that_is_being_opened() -> None:
    async with connected() as (fake, client):
        opening = asyncio.ensure_future(client.create_session(on_provider_token=lambda request: "tok"))
        stream = await soon(fake.attaches.get())
        await stream.send(
            bridge.AttachResponse(
                opening=bridge.AttachOpening(participant_id="p1", participant_token="t", session_id="s1")
            )
        )
        callback = bridge.Callback(
            callback_id="g", session_id="s1", kind=bridge.CallbackKind.CALLBACK_KIND_PROVIDER_TOKEN
        )
        callback.provider_token.provider_name = "p"
        await stream.ask(callback)
        assert (await stream.answer()).answer.provider_token.token == "tok"
        assert not opening.done()
        await stream.start()
        await soon(opening)
