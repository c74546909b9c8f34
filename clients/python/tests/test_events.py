"""Streams of events and turns, and what can happen to them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from copilot_grpc import Event, Gap, Position
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.errors import ConnectionLost, CopilotError, SessionNotFound, Unauthenticated

from .fake import Fake, ServerStream, connected, position, refuse, soon


def events(*seqs: int, type: str = "assistant.message") -> bridge.SubscribeResponse:
    """A frame with events of these positions."""
    batch = bridge.EventBatch()
    for seq in seqs:
        event = batch.events.add()
        event.position.CopyFrom(position(1, seq))
        event.event.event_type = type
        event.event.assistant_message.content = f"m{seq}"
    return bridge.SubscribeResponse(session_id="s1", events=batch, resume_after=position(1, seqs[-1]))


def frame(seq: int, **kind: Any) -> bridge.SubscribeResponse:
    return bridge.SubscribeResponse(session_id="s1", resume_after=position(1, seq), **kind)


CLOSED = bridge.SubscriptionClosed(reason=bridge.CloseReason.CLOSE_REASON_DISCONNECTED)


async def collect(stream: Any) -> list[Event]:
    return [event async for event in stream]


def positions(found: list[Event]) -> list[str]:
    return [str(event.position) for event in found]


async def subscribed(fake: Fake) -> ServerStream[bridge.SubscribeRequest]:
    return await soon(fake.subscriptions.get())


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED", "INTERNAL", "OK"])
async def test_events_continue_where_the_stream_broke(code: str) -> None:
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events()))
        stream = await subscribed(fake)
        assert not stream.request.sessions[0].HasField("after")
        await stream.send(frame(0, started=bridge.SubscriptionStarted()), events(1, 2))
        stream.end(grpc.StatusCode[code] if code != "OK" else None)
        again = await subscribed(fake)
        assert again.request.sessions[0].after == position(1, 2)
        await again.send(
            frame(2, started=bridge.SubscriptionStarted()), events(2, 3), events(3), frame(3, closed=CLOSED)
        )
        assert positions(await soon(reading)) == ["1/1", "1/2", "1/3"]


async def test_doubled_frames_are_read_once() -> None:
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events()))
        stream = await subscribed(fake)
        await stream.send(events(1, 2), events(1, 2), events(2, 3), frame(3, closed=CLOSED))
        assert positions(await soon(reading)) == ["1/1", "1/2", "1/3"]


async def test_go_away_and_draining_reconnect() -> None:
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events()))
        stream = await subscribed(fake)
        await stream.send(events(1), bridge.SubscribeResponse(go_away=bridge.GoAway()))
        stream = await subscribed(fake)
        draining = bridge.SubscriptionClosed(reason=bridge.CloseReason.CLOSE_REASON_DRAINING)
        await stream.send(events(2), frame(2, closed=draining))
        stream = await subscribed(fake)
        assert stream.request.sessions[0].after == position(1, 2)
        await stream.send(frame(2, closed=CLOSED))
        assert positions(await soon(reading)) == ["1/1", "1/2"]


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_gaps_are_values(ephemeral: bool) -> None:
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events(ephemeral_gaps=ephemeral)))
        stream = await subscribed(fake)
        reasons = bridge.GapReason
        trimmed = bridge.Gap(after=position(1, 1), through=position(1, 4), reason=reasons.GAP_REASON_TRIMMED)
        lost = bridge.Gap(through=position(1, 6), reason=reasons.GAP_REASON_EPHEMERAL_LOST)
        await stream.send(
            events(1), frame(4, gap=trimmed), events(5), frame(6, gap=lost), events(7), frame(7, closed=CLOSED)
        )
        found = await soon(reading)
        assert positions(found) == ["1/1", "1/4", "1/5", *(["1/6"] if ephemeral else []), "1/7"]
        gap = found[1]
        assert isinstance(gap, Gap) and gap.reason == "trimmed" and str(gap.after) == "1/1"
        assert gap.type == "gap" and gap.data is None


async def test_where_events_start() -> None:
    async with connected() as (fake, client):
        session = client.session("s1")
        for options, want in (
            ({}, bridge.SessionCursor(session_id="s1")),
            ({"start": "now"}, bridge.SessionCursor(session_id="s1", start=bridge.StreamStart.STREAM_START_END)),
            ({"after": Position(1, 7)}, bridge.SessionCursor(session_id="s1", after=position(1, 7))),
        ):
            reading = asyncio.ensure_future(collect(session.events(**options)))
            stream = await subscribed(fake)
            assert stream.request.sessions[0] == want
            await stream.send(frame(7, closed=CLOSED))
            await soon(reading)
        with pytest.raises(ValueError, match="either a filter"):
            session.events(types=["a"], filter=bridge.EventFilter())


async def test_unknown_types_frames_and_enum_values() -> None:
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events()))
        stream = await subscribed(fake)
        newer = events(1)
        newer.events.events[0].event.event_type = "thing.new"
        newer.events.events[0].event.unrecognized = '{"a": 1}'
        gap = bridge.Gap.FromString(b"\x18\x63")  # reason 99
        gap.through.CopyFrom(position(1, 2))
        unknown = bridge.SubscribeResponse.FromString(b"\xfa\x3e\x03new")
        await stream.send(newer, unknown, frame(2, gap=gap), frame(2, closed=CLOSED))
        event, missing = await soon(reading)
        assert (event.type, event.data) == ("thing.new", '{"a": 1}')
        assert isinstance(missing, Gap) and missing.reason == "99"


async def test_leaving_the_loop_closes_the_stream() -> None:
    async with connected() as (fake, client):
        async with client.session("s1").events() as stream:
            reading = asyncio.ensure_future(stream.__anext__())
            served = await subscribed(fake)
            await served.send(events(1))
            assert (await soon(reading)).position == Position(1, 1)
        await soon(served.gone.wait())


async def test_errors_of_the_server_end_the_events() -> None:
    async with connected() as (fake, client):

        async def refuse_subscription(request: Any, context: Any) -> None:
            await refuse(context, grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", "gone")

        fake.streams["Subscribe"] = refuse_subscription
        with pytest.raises(SessionNotFound, match="gone"):
            await collect(client.session("s1").events())
        fake.streams["Subscribe"] = lambda request, context: refuse(
            context, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "expired"
        )
        with pytest.raises(Unauthenticated):
            await collect(client.session("s1").events())


async def test_closing_the_session_ends_its_streams() -> None:
    async with connected() as (fake, client):
        session = client.session("s1")
        reading = asyncio.ensure_future(collect(session.events()))
        stream = await subscribed(fake)
        await session.close()
        assert await soon(reading) == []
        await soon(stream.gone.wait())


async def test_a_silent_stream_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_grpc._events.silence_of", lambda options: 0.05)
    async with connected() as (fake, client):
        reading = asyncio.ensure_future(collect(client.session("s1").events()))
        await subscribed(fake)
        monkeypatch.setattr("copilot_grpc._events.silence_of", lambda options: 60.0)
        stream = await subscribed(fake)
        await stream.send(frame(0, closed=CLOSED))
        assert await soon(reading) == []


async def test_history_turns_pages() -> None:
    def page(request: bridge.ListEventsRequest, context: Any) -> bridge.ListEventsResponse:
        if not request.page_token:
            return bridge.ListEventsResponse(events=events(1, 2).events.events, next_page_token="2")
        return bridge.ListEventsResponse(events=events(3).events.events)

    async with connected() as (fake, client):
        fake.unary["ListEvents"] = page
        assert positions(await collect(client.session("s1").history())) == ["1/1", "1/2", "1/3"]


# Turns.


def outcome(**fields: Any) -> bridge.RunResponse:
    status = bridge.TurnStatus.TURN_STATUS_COMPLETED
    return bridge.RunResponse(outcome=bridge.TurnOutcome(status=status, end_position=position(1, 9), **fields))


STARTED = bridge.RunResponse(started=bridge.RunStarted(session_id="s1", message_id="m", position=position(1, 1)))


async def test_a_turn_continues_over_a_broken_stream() -> None:
    async with connected() as (fake, client):
        turn = client.session("s1").run("Hello")
        reading = asyncio.ensure_future(collect(turn))
        stream = await soon(fake.runs.get())
        await stream.send(STARTED, bridge.RunResponse(stream=events(2, 3)))
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await soon(fake.runs.get())
        assert again.request == stream.request and again.request.request_id
        await again.send(
            STARTED, bridge.RunResponse(stream=events(2, 3)), bridge.RunResponse(stream=events(4)), outcome(text="hi")
        )
        assert positions(await soon(reading)) == ["1/2", "1/3", "1/4"]
        assert (await turn).text == "hi" and (await turn.outcome()).message_id == "m"
        with pytest.raises(RuntimeError, match="have been read"):
            turn.__aiter__()


async def test_the_outcome_alone_sends_the_prompt() -> None:
    async with connected() as (fake, client):
        waiting = asyncio.ensure_future(client.session("s1").run("Hello").outcome())
        stream = await soon(fake.runs.get())
        await stream.send(STARTED, outcome(text="done"))
        assert (await soon(waiting)).ok


async def test_progress_before_a_turn_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "copilot_grpc")
    async with connected() as (fake, client):
        waiting = asyncio.ensure_future(client.session("s1").run("Hello").outcome())
        stream = await soon(fake.runs.get())
        await stream.send(bridge.RunResponse(progress=bridge.Progress(detail="starting")), STARTED, outcome())
        assert (await soon(waiting)).ok
    assert "waiting for the server: starting" in caplog.messages


async def test_a_turn_that_was_left_has_no_outcome() -> None:
    async with connected() as (fake, client):
        turn = client.session("s1").run("Hello")
        reading = asyncio.ensure_future(turn.__aiter__().__anext__())
        stream = await soon(fake.runs.get())
        await stream.send(STARTED, bridge.RunResponse(stream=events(2)))
        await soon(reading)
        assert turn._events is not None
        await turn._events.aclose()
        with pytest.raises(ConnectionLost, match="not read to its end"):
            await turn


async def test_deltas() -> None:
    def delta(text: str, agent: str = "") -> bridge.RunResponse:
        message = events(2, type="assistant.message_delta")
        event = message.events.events[0].event
        event.assistant_message_delta.message_id = "a"
        event.assistant_message_delta.delta_content = text
        event.agent_id = agent
        return bridge.RunResponse(stream=message)

    async with connected() as (fake, client):
        turn = client.session("s1").run("Hello")

        async def read() -> list[str]:
            return [text async for text in turn.deltas()]

        reading = asyncio.ensure_future(read())
        stream = await soon(fake.runs.get())
        frames = [delta("He"), delta("from a sub-agent", "x"), delta("llo")]
        for seq, one in enumerate(frames, 2):
            one.stream.events.events[0].position.seq = seq
            one.stream.resume_after.seq = seq
        whole, other = events(5), events(6)
        whole.events.events[0].event.assistant_message.message_id = "a"
        other.events.events[0].event.assistant_message.message_id = "b"
        await stream.send(*frames, bridge.RunResponse(stream=whole), bridge.RunResponse(stream=other), outcome())
        assert await soon(reading) == ["He", "llo", "m6"]


async def test_a_refused_turn_raises() -> None:
    async with connected() as (fake, client):
        fake.streams["Run"] = lambda request, context: refuse(
            context, grpc.StatusCode.INVALID_ARGUMENT, "PROMPT_EMPTY", "no text", field="prompt"
        )
        with pytest.raises(CopilotError, match="no text") as caught:
            await client.session("s1").run("")
        assert type(caught.value).__name__ == "PromptEmpty" and caught.value.field == "prompt"
