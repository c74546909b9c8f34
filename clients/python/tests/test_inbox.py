"""All sessions: what waits in them, their labels and their usage."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import Any

import grpc
import pytest

from copilot_grpc import PendingCallback, answers
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.errors import CallbackResolved

from .fake import connected, permission_callback, refuse, soon


def requested(callback_id: str, session_id: str = "s1") -> bridge.WatchPendingResponse:
    callback = permission_callback(callback_id)
    callback.session_id = session_id
    return bridge.WatchPendingResponse(requested=callback)


def resolved(callback_id: str) -> bridge.WatchPendingResponse:
    outcome = bridge.CallbackOutcome.CALLBACK_OUTCOME_ANSWERED
    inner = bridge.CallbackResolved(callback_id=callback_id, outcome=outcome)
    return bridge.WatchPendingResponse(resolved=bridge.PendingResolved(session_id="s1", resolved=inner))


CAUGHT_UP = bridge.WatchPendingResponse(caught_up=bridge.PendingCaughtUp())
RESET = bridge.WatchPendingResponse(reset=bridge.PendingReset())
HEARTBEAT = bridge.WatchPendingResponse(heartbeat=bridge.PendingHeartbeat())
UNMATCHED = bridge.WatchPendingResponse(unmatched=bridge.PendingUnmatched(session_id="s2"))


async def test_changes_survive_resets_and_broken_streams() -> None:
    requests: list[bridge.WatchPendingRequest] = []
    streams = [
        # "b" ends while the stream is reset, "c" while it is broken.
        [requested("a"), requested("b"), requested("x", "s2"), CAUGHT_UP, HEARTBEAT, RESET, requested("a"),
         requested("c"), requested("x", "s2"), CAUGHT_UP, UNMATCHED],
        [requested("a")],
        [requested("a"), requested("d"), CAUGHT_UP, resolved("a"), resolved("unknown"), requested("last")],
    ]  # fmt: skip

    async def watch(request: bridge.WatchPendingRequest, context: Any) -> None:
        requests.append(request)
        for change in streams[len(requests) - 1]:
            await context.write(change)
        if len(requests) < len(streams):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        await asyncio.Event().wait()

    seen: list[tuple[str, str]] = []
    async with connected(name="me") as (fake, client):
        fake.streams["WatchPending"] = watch
        async with client.watch_pending(handle=True, labels={"team": "red"}, owner="host", grace=5) as changes:
            async for change in changes:
                if isinstance(change, PendingCallback):
                    seen.append(("waits", change.id))
                else:
                    how = "resolved" if change.resolved is not None else "gone"
                    seen.append((how, change.id))
                if seen[-1] == ("waits", "last"):
                    break
    assert seen == [
        ("waits", "a"), ("waits", "b"), ("waits", "x"), ("waits", "c"), ("gone", "b"), ("gone", "x"),
        ("waits", "d"), ("gone", "c"), ("resolved", "a"), ("waits", "last"),
    ]  # fmt: skip
    request = requests[0]
    assert request.handle and request.name == "me" and request.grace.seconds == 5
    assert dict(request.filter.labels) == {"team": "red"} and request.filter.owner == "host"
    assert requests == [request] * 3


async def test_answer_in_one_expression() -> None:
    answered: list[bridge.ResolveRequest] = []

    async def watch(request: bridge.WatchPendingRequest, context: Any) -> None:
        await context.write(requested("a"))
        await asyncio.Event().wait()

    async def resolve(request: bridge.ResolveRequest, context: Any) -> bridge.ResolveResponse:
        answered.append(request)
        if len(answered) == 1:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "RUNTIME_LOST", "away")
        if len(answered) > 2:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "CALLBACK_RESOLVED", "answered by another")
        return bridge.ResolveResponse()

    async with connected() as (fake, client):
        fake.streams["WatchPending"], fake.unary["Resolve"] = watch, resolve
        async with client.watch_pending() as changes:
            change = await soon(changes.__anext__())
            assert isinstance(change, PendingCallback) and "connection" not in repr(change)
            await change.answer(answers.approve())
            assert (answered[0].session_id, answered[0].callback_id) == ("s1", "a")
            assert answered[0] == answered[1] and answered[0].request_id and answered[0].answer.HasField("approve")
            with pytest.raises(CallbackResolved):
                await change.answer(answers.reject())


async def test_labels() -> None:
    received: list[Any] = []

    def update(request: bridge.UpdateLabelsRequest, context: Any) -> bridge.UpdateLabelsResponse:
        received.append(request)
        return bridge.UpdateLabelsResponse(session=bridge.Session(session_id="s1", labels={"team": "red"}))

    def sessions(request: bridge.ListSessionsRequest, context: Any) -> bridge.ListSessionsResponse:
        received.append(request)
        return bridge.ListSessionsResponse()

    async def watch(request: bridge.WatchSessionsRequest, context: Any) -> None:
        received.append(request)
        await context.write(bridge.WatchSessionsResponse(change=bridge.SessionChange.SESSION_CHANGE_CREATED))
        await asyncio.Event().wait()

    async with connected() as (fake, client):
        fake.unary["UpdateLabels"], fake.unary["ListSessions"], fake.streams["WatchSessions"] = update, sessions, watch
        assert await client.session("s1").update_labels({"team": "red"}, remove=["old"]) == {"team": "red"}
        filter = bridge.SessionFilter(branch="main", labels={"a": "b"})
        assert [found async for found in client.list_sessions(labels={"team": "red"}, filter=filter)] == []
        assert [found async for found in client.list_sessions(include_history=True)] == []
        async with client.watch_sessions(labels={"team": "red"}) as changes:
            await soon(changes.__anext__())
        opening = asyncio.ensure_future(client.create_session(labels={"team": "red"}))
        stream = await fake.attached()
        await soon(opening)
    assert received == [
        bridge.UpdateLabelsRequest(session_id="s1", set={"team": "red"}, remove=["old"]),
        bridge.ListSessionsRequest(filter=bridge.SessionFilter(branch="main", labels={"a": "b", "team": "red"})),
        bridge.ListSessionsRequest(include_history=True),
        bridge.WatchSessionsRequest(filter=bridge.SessionFilter(labels={"team": "red"})),
    ]
    assert dict(filter.labels) == {"a": "b"} and dict(stream.request.create.labels) == {"team": "red"}


async def test_usage() -> None:
    received: list[bridge.GetUsageRequest] = []

    def usage(request: bridge.GetUsageRequest, context: Any) -> bridge.GetUsageResponse:
        received.append(request)
        return bridge.GetUsageResponse(rows=[bridge.UsageRow(day="2026-11-22", requests=3)])

    async with connected() as (fake, client):
        fake.unary["GetUsage"] = usage
        start = datetime(2026, 11, 22, tzinfo=timezone.utc)
        rows = await client.usage(by=["day", "owner"], labels={"team": "red"}, start=start, end=start)
        assert [(row.day, row.requests) for row in rows] == [("2026-11-22", 3)]
        assert (await client.usage(session_id="s1"))[0].requests == 3
        with pytest.raises(ValueError, match="WEEK"):
            await client.usage(by=["week"])  # type: ignore[list-item]
    groups = [bridge.UsageGroup.USAGE_GROUP_DAY, bridge.UsageGroup.USAGE_GROUP_OWNER]
    assert received[0].group_by == groups and dict(received[0].filter.labels) == {"team": "red"}
    assert received[0].start_time.seconds == received[0].end_time.seconds == int(start.timestamp())
    assert received[1] == bridge.GetUsageRequest(session_id="s1")
