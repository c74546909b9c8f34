"""Tokens that expire while a program uses them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from copilot_grpc import Reconnect, Token
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.errors import Unauthenticated

from .fake import connected, refuse, soon

EXPIRED = (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "the token has expired")


class Rotating:
    """A token that a test changes."""

    def __init__(self) -> None:
        self.now = "old"
        self.source = Token.function(lambda: self.now)


def bearer(context: Any) -> str:
    return str(dict(context.invocation_metadata())["authorization"]).removeprefix("Bearer ")


async def test_calls_that_fail_together_are_each_repeated_with_the_new_token() -> None:
    token, seen, together = Rotating(), [], asyncio.Event()

    async def abort(request: bridge.AbortRequest, context: Any) -> bridge.AbortResponse:
        seen.append(bearer(context))
        if seen[-1] == "old":
            if len(seen) == 2:
                token.now = "new"
                together.set()
            await together.wait()
            await refuse(context, *EXPIRED)
        return bridge.AbortResponse(turn_was_running=True)

    async with connected(token=token.source) as (fake, client):
        fake.unary["Abort"] = abort
        session = client.session("s1")
        assert all(await soon(asyncio.gather(session.abort(), session.abort())))
    assert seen == ["old", "old", "new", "new"]


async def test_call_is_repeated_only_once_and_only_with_another_token() -> None:
    seen: list[str] = []

    async def abort(request: bridge.AbortRequest, context: Any) -> bridge.AbortResponse:
        seen.append(bearer(context))
        await refuse(context, *EXPIRED)
        raise AssertionError

    numbers = iter(range(100))
    for source, attempts in ((Token.static("same"), 1), (Token.function(lambda: str(next(numbers))), 2)):
        seen.clear()
        async with connected(token=source) as (fake, client):
            fake.unary["Abort"] = fake.unary["SendAndWait"] = fake.unary["Send"] = abort
            session = client.session("s1")
            for call in (session.abort, lambda: session.send("x"), lambda: session.send_and_wait("x")):  # noqa: B023
                seen.clear()
                with pytest.raises(Unauthenticated, match="expired"):
                    await soon(call())
                assert len(seen) == attempts == len(set(seen))


async def test_wait_for_a_turn_continues_with_the_new_token() -> None:
    token, seen = Rotating(), []

    async def wait(request: bridge.SendAndWaitRequest, context: Any) -> bridge.SendAndWaitResponse:
        seen.append((bearer(context), request.request_id))
        if len(seen) == 1:
            token.now = "new"
            await refuse(context, *EXPIRED)
        completed = bridge.TurnStatus.TURN_STATUS_COMPLETED
        return bridge.SendAndWaitResponse(message_id="m", outcome=bridge.TurnOutcome(status=completed, text="done"))

    async with connected(token=token.source, reconnect=Reconnect(give_up_after=0)) as (fake, client):
        fake.unary["SendAndWait"] = wait
        assert (await soon(client.session("s1").send_and_wait("Hello"))).text == "done"
    assert [name for name, _ in seen] == ["old", "new"] and seen[0][1] == seen[1][1]


async def test_streams_are_opened_again_with_the_new_token() -> None:
    token, seen = Rotating(), []

    async def subscribe(request: bridge.SubscribeRequest, context: Any) -> None:
        seen.append(bearer(context))
        if seen[-1] == "old":
            # Another call renews the token before the stream's reader sees the refusal.
            token.now = "new"
            await asyncio.to_thread(token.source.value)
            await refuse(context, *EXPIRED)
        closed = bridge.SubscriptionClosed(reason=bridge.CloseReason.CLOSE_REASON_DELETED)
        await context.write(bridge.SubscribeResponse(session_id="s1", closed=closed))

    async with connected(token=token.source) as (fake, client):
        fake.streams["Subscribe"] = subscribe
        assert [event async for event in client.session("s1").events()] == []
        assert seen == ["old", "new"]


async def test_stream_with_ever_new_tokens_that_the_server_refuses_ends() -> None:
    seen: list[str] = []

    async def subscribe(request: bridge.SubscribeRequest, context: Any) -> None:
        seen.append(bearer(context))
        await refuse(context, *EXPIRED)

    numbers = iter(range(100))
    async with connected(token=Token.function(lambda: str(next(numbers)))) as (fake, client):
        fake.streams["Subscribe"] = subscribe
        with pytest.raises(Unauthenticated, match="expired"):
            async for _ in client.session("s1").events():
                pass
    assert len(seen) == 2


async def test_participation_continues_with_the_new_token() -> None:
    token = Rotating()
    async with connected(token=token.source) as (fake, client):
        opening = asyncio.ensure_future(client.join_session("s1"))
        stream = await fake.attached()
        await soon(opening)
        assert bearer(stream._context) == "old"
        token.now = "new"
        stream._context.set_trailing_metadata((("copilot-reason", "UNAUTHENTICATED"),))
        stream.end(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")
        again = await fake.attached()
        assert bearer(again._context) == "new" and again.request.participant_token == "secret"
