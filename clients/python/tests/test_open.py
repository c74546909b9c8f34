"""How sessions are opened: the options that create, resume and open share, and open itself."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from copilot_grpc import Client, SessionInfo, SessionOptions, sync
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.cli import v1 as cli
from copilot_grpc.errors import SessionExists, SessionNotFound

from .fake import Attached, Fake, connected, refuse, soon

OPTIONS: SessionOptions = {
    "model": "m1",
    "labels": {"team": "red"},
    "node_labels": {"disk": "big"},
    "cloud": cli.CloudSessionConfig(),
    "lifetime": "end_with_last_participant",
    "interrupted_turns": "continue",
    "continue_pending_work": True,
    "clear": ["mcp_servers"],
    "request_id": "r1",
}


async def start_of(fake: Fake, opening: Any) -> bridge.AttachStart:
    """The first frame of a session that is opened."""
    task = asyncio.ensure_future(opening)
    stream = await fake.attached()
    await soon(task)
    return stream.request


async def test_create_and_resume_share_their_options() -> None:
    async with connected() as (fake, client):
        create = (await start_of(fake, client.create_session(session_id="s1", **OPTIONS))).create
        resume = (await start_of(fake, client.resume_session("s1", **OPTIONS))).resume
    for request in (create, resume):
        assert request.session_id == "s1" and request.config.model == "m1" and request.request_id == "r1"
        assert request.lifetime == bridge.Lifetime.LIFETIME_END_WITH_LAST_PARTICIPANT
        assert request.on_interruption == bridge.OnInterruption.ON_INTERRUPTION_CONTINUE
        assert list(request.update_mask.paths) == ["mcp_servers"]
    assert dict(create.labels) == {"team": "red"} and dict(create.node_labels) == {"disk": "big"}
    assert create.HasField("cloud") and resume.continue_pending_work


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, True),
        ({"streaming": False}, False),
        ({"config": cli.SessionConfig(model="m1")}, True),
        ({"config": cli.SessionConfig(streaming=False)}, False),
        ({"config": cli.SessionConfig(streaming=False), "streaming": True}, True),
        ({"clear": ["streaming"]}, None),
    ],
)
async def test_sessions_stream(options: SessionOptions, want: bool | None) -> None:
    async with connected() as (fake, client):
        create = (await start_of(fake, client.create_session(**options))).create
        resume = (await start_of(fake, client.resume_session("s1", **options))).resume
        join = await start_of(fake, client.join_session("s1"))
    for config in (create.config, resume.config):
        assert (config.streaming if config.HasField("streaming") else None) is want
    assert join.join_session_id == "s1" and not join.HasField("resume")


@pytest.mark.parametrize("options", [{"lifetime": "forever"}, {"interrupted_turns": "ON_INTERRUPTION_CONTINUE"}])
async def test_words_of_options_are_checked(options: Any) -> None:
    async with connected() as (_, client):
        with pytest.raises(ValueError, match="want"):
            await client.create_session(**options)


class Sessions:
    """A server that has a session, or not, according to a list of facts."""

    def __init__(self, fake: Fake, exists: list[bool]) -> None:
        self.fake, self.exists, self.requests = fake, exists, list[bridge.AttachStart]()
        fake.streams["Attach"] = self.attach

    async def attach(self, requests: Any, context: Any) -> None:
        start = (await anext(requests)).start
        self.requests.append(start)
        exists = self.exists.pop(0)
        if start.HasField("create") and exists:
            await refuse(context, grpc.StatusCode.ALREADY_EXISTS, "SESSION_EXISTS", "there is one")
        if start.HasField("resume") and not exists:
            await refuse(context, grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", "there is none")
        stream = Attached(start, context)
        await stream.start()
        async for request in requests:
            if request.HasField("leave"):
                await stream.tell(closed=bridge.SubscriptionClosed(reason=bridge.CloseReason.CLOSE_REASON_LEFT))
                return

    @property
    def ways(self) -> list[str | None]:
        return [request.WhichOneof("session") for request in self.requests]


@pytest.mark.parametrize(
    ("exists", "ways", "begin"),
    [
        ([True], ["resume"], "1/3"),
        ([False, False], ["resume", "create"], None),
        ([False, True, True], ["resume", "create", "resume"], "1/3"),  # another program was first
        ([False, True, False, False], ["resume", "create", "resume", "create"], None),  # and has deleted it
    ],
)
async def test_open_resumes_or_creates(exists: list[bool], ways: list[str], begin: str | None) -> None:
    async with connected() as (fake, client):
        server = Sessions(fake, exists)
        async with client.open_session("s1", **OPTIONS) as session:
            assert session.id == "s1"
            # The events of a new session are read from its first one.
            assert (str(session._begin) if session._begin else None) == begin
        assert server.ways == ways
        ids = [r.create.request_id if r.HasField("create") else r.resume.request_id for r in server.requests]
        assert len(set(ids)) == len(ids)  # an id belongs to one request


async def test_open_gives_up() -> None:
    async with connected() as (fake, client):
        server = Sessions(fake, [False, True] * 5)
        with pytest.raises(SessionExists):
            await client.open_session("s1")
        assert len(server.requests) == 10


async def test_other_errors_of_open_are_final() -> None:
    async def forbid(requests: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "FORBIDDEN", "no")

    async with connected() as (fake, client):
        fake.streams["Attach"] = forbid
        with pytest.raises(Exception, match="FORBIDDEN"):
            await client.open_session("s1")


async def test_after_its_end_the_error_says_who_ended_it() -> None:
    async def gone(request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND", "there is none")

    async with connected() as (fake, client):
        fake.unary["Send"] = fake.unary["SendAndWait"] = fake.unary["ListPending"] = gone
        fake.streams["Run"] = fake.streams["ReadEvent"] = gone
        fake.unary["DisconnectSession"] = lambda *_: bridge.DisconnectSessionResponse()
        fake.unary["DeleteSession"] = lambda *_: bridge.DeleteSessionResponse()
        left, deleted, other = (client.session("s1") for _ in range(3))
        await left.disconnect()
        await deleted.delete()
        for session, want in ((left, "resume_session opens it again"), (deleted, "has deleted"), (other, "none$")):
            for call in (session.send, session.send_and_wait, session.run):
                with pytest.raises(SessionNotFound, match=want):
                    await call("Hello")
            with pytest.raises(SessionNotFound, match=want):
                await session.pending()


def test_title_is_the_name_or_else_the_summary() -> None:
    for name, summary, want in (("n", "s", "n"), ("", "s", "s"), ("", "", "")):
        assert SessionInfo(bridge.Session(name=name, summary=summary)).title == want


def test_states_are_words() -> None:
    words = {SessionInfo(bridge.Session(state=value)).state for value in bridge.SessionState.values()}
    names = bridge.SessionState.keys()
    assert words == {name.removeprefix("SESSION_STATE_").lower() for name in names}
    assert SessionInfo(bridge.Session(state=99)).state == "99"  # type: ignore[arg-type,comparison-overlap]


# Type checkers read the following functions; nothing calls them.


async def shares_options(client: Client, options: SessionOptions) -> None:
    await client.create_session(session_id="s1", **options)
    await client.resume_session("s1", **options)
    async with client.open_session("s1", **options):
        pass


def shares_options_without_asyncio(client: sync.Client, options: SessionOptions) -> None:
    client.create_session(session_id="s1", **options)
    client.resume_session("s1", **options)
    with client.open_session("s1", **options):
        pass
