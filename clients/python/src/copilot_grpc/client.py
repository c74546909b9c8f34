"""The client."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Union, cast

from typing_extensions import Unpack

from ._await import Opening
from ._channel import PathOrBytes, Token, check_target, choose_token, default_socket, open_channel
from ._retry import Reconnect
from .errors import ConnectionLost, CopilotError, ServerNotFound
from .options import ParticipantOptions, SessionOptions

if TYPE_CHECKING:
    import grpc.aio

    from ._client import Connection
    from ._events import Stream
    from ._inbox import PendingCallback, PendingEnd
    from ._info import SessionChange, SessionInfo
    from ._opening import How
    from ._server import ServerProcess
    from ._session import Session
    from ._turn import Outcome
    from .bridge import v1 as bridge
    from .cli import v1 as cli

_log = logging.getLogger("copilot_grpc")
_CHUNK = 256 << 10  # bytes of a message of an import
UsageGroup = Literal["day", "model", "session", "owner"]


class Client:
    """A client of one server. Its methods may run concurrently, on the event loop where it was made."""

    def __init__(self, connection: Connection, server: ServerProcess | None) -> None:
        """Not for programs: use `Client.connect`."""
        self._connection, self._server = connection, server
        self._sessions: set[Session] = set()

    @classmethod
    def connect(
        cls, target: str | None = None, *, token: Union[str, Token, None] = None, ca: PathOrBytes | None = None,
        certificate: PathOrBytes | None = None, key: PathOrBytes | None = None, server_name: str = "",
        insecure: bool = False, name: str = "", reconnect: Reconnect | None = None, timeout: float | None = 60.0,
        connect_timeout: float = 20.0, launch: bool | None = None,
        binary: Union[str, os.PathLike[str]] = "copilot-grpc", server_args: Sequence[str] = (),
        server_env: Mapping[str, str] | None = None, channel_options: Sequence[tuple[str, Any]] = (),
    ) -> Opening[Client]:  # fmt: skip
        """Connects to a server and checks that it answers, accepts the caller, and has a version that works.

        Args:
            target: `HOST:PORT`, `unix:/PATH`, or another target of gRPC such as `dns:///HOST:PORT`, without a scheme
                of HTTP. Default: the environment variable
                COPILOT_GRPC_TARGET; else the default socket of `copilot-grpc serve`, if a server listens there; else a
                private server.
            token: Bearer token; see `Token` for tokens that change. Default: the environment variable
                COPILOT_GRPC_TOKEN, except for unix sockets.
            ca: Certificates that sign the server's, as a file or PEM. Default: the system's. TLS is used for all
                targets except unix sockets and loopback addresses, and for those if a certificate is given.
            certificate: This client's certificate, as a file or PEM.
            key: The certificate's key.
            server_name: Name in the server's certificate, if the target has another one.
            insecure: Does not use TLS for another machine. Not with a token or a certificate.
            name: Name of this program as a participant, for users and logs.
            reconnect: How broken streams are opened again.
            timeout: Seconds for each unary call; None for no limit. `send_and_wait` has none by default.
            connect_timeout: Seconds for the check.
            launch: True starts a private server, False never does; default: as described at `target`. A private
                server's sessions end with it, unless `server_args` have a `--data-dir`.
            binary: The binary of a private server, looked up on PATH.
            server_args: Further arguments of `copilot-grpc serve` for a private server.
            server_env: Further environment variables of a private server.
            channel_options: Further options of the gRPC channel.

        Raises:
            ServerNotFound: There is no server, and no binary to start one.
            ValueError: The target is a URL, or options contradict each other.
            ServerIncompatible: The server is no copilot-grpc, or its version does not work with this library.
            CopilotError: The server cannot be reached, or refuses the caller.
        """

        async def open_it() -> Client:
            from ._client import Connection

            chosen, start = _choose(target, launch)
            server = await _launch(binary, server_args, server_env) if start else None
            address = server.target if server else chosen
            connection: Connection | None = None
            try:
                channel = open_channel(
                    address, token=choose_token(address, token), ca=ca, certificate=certificate, key=key,
                    server_name=server_name, insecure=insecure, options=tuple(channel_options),
                )  # fmt: skip
                policy = reconnect or Reconnect()
                connection = Connection(channel, name=name, reconnect=policy, timeout=timeout)
                await connection.check(address, connect_timeout)
            except BaseException as error:
                if connection is not None:
                    await connection.channel.close()
                if server is not None:
                    await server.stop()
                if isinstance(error, ConnectionLost):
                    remedy = (
                        "start one with `copilot-grpc serve`, or name another one with the option target of"
                        " Client.connect or the variable COPILOT_GRPC_TARGET"
                    )
                    raise ServerNotFound(f"no server at {address} ({error.message}): {remedy}") from None
                raise
            return cls(connection, server)

        return Opening(open_it)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leaves all sessions, closes the channel, and ends a private server. Closing again does nothing."""
        results = await asyncio.gather(*(session.close() for session in self._sessions), return_exceptions=True)
        for error in results:
            if isinstance(error, CopilotError):
                _log.debug("session not left: %s", error)
            elif error is not None:
                raise error
        await self._connection.channel.close()
        if self._server is not None:
            await self._server.stop()

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel, for stubs of copilot.cli.v1."""
        return self._connection.channel

    # Sessions.

    def create_session(self, *, session_id: str = "", **options: Unpack[SessionOptions]) -> Opening[Session]:
        """Creates a session and joins it. Leaving the session does not end it unless its lifetime says so.

        Args:
            session_id: Id of the new session: letters, digits, '-' and '_', at most 128 characters; default: a random
                UUID.
            options: See `SessionOptions`.
        """
        return Opening(lambda: self._open("create", session_id, options))

    def resume_session(self, session_id: str, **options: Unpack[SessionOptions]) -> Opening[Session]:
        """Opens a session, from the CLI's history if necessary, and joins it. Adds a session.resume event."""
        return Opening(lambda: self._open("resume", session_id, options))

    def open_session(self, session_id: str, **options: Unpack[SessionOptions]) -> Opening[Session]:
        """Resumes a session, in any state, or creates it with this id if there is none.

        Two programs that open the same id at the same time are in the same session.
        """
        return Opening(lambda: self._open("open", session_id, options))

    def join_session(self, session_id: str, **options: Unpack[ParticipantOptions]) -> Opening[Session]:
        """Joins an open session, without a trace in its history."""
        return Opening(lambda: self._open("join", session_id, options))

    def session(self, session_id: str) -> Session:
        """A handle on a session: it sends, watches and resolves, and has no tools and handlers. Makes no call."""
        from ._session import Session
        from .bridge import v1 as bridge

        session = Session(
            self._connection, session_id, None, bridge.Session(session_id=session_id), self._sessions.discard, False
        )
        self._sessions.add(session)
        return session

    async def _open(self, how: How, session_id: str, options: Any) -> Session:
        from ._opening import open_session

        session = await open_session(self._connection, how, session_id, options, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def run(self, prompt: str, **options: Unpack[SessionOptions]) -> Outcome:
        """Creates a session for one prompt, waits for the end of its turn, and deletes the session."""
        async with self.create_session(**options) as session:
            try:
                return await session.send_and_wait(prompt, abort_on_cancel=True)
            finally:
                await session.delete()

    async def get_session(self, session_id: str) -> SessionInfo:
        """The state of a session."""
        from ._info import SessionInfo
        from .bridge import v1 as bridge

        request = bridge.GetSessionRequest(session_id=session_id)
        return SessionInfo((await self._connection.unary(self._connection.sessions.GetSession, request)).session)

    def list_sessions(
        self, *, labels: Mapping[str, str] | None = None, filter: bridge.SessionFilter | None = None,
        include_history: bool = False,
    ) -> Stream[SessionInfo]:  # fmt: skip
        """The caller's sessions, most recently used first: all, or those with the labels that match the filter.

        Args:
            labels: Only sessions with these labels.
            filter: Only sessions that match.
            include_history: Also sessions of the CLI's history that were never opened through the server, such as
                those of a person at a terminal with the same home.
        """
        from ._events import Stream
        from .bridge import v1 as bridge

        request = bridge.ListSessionsRequest(filter=_labelled(filter, labels), include_history=include_history)
        return Stream(self._list(request))

    async def _list(self, request: bridge.ListSessionsRequest) -> AsyncGenerator[SessionInfo, None]:
        from ._info import SessionInfo

        while True:
            page = await self._connection.unary(self._connection.sessions.ListSessions, request)
            for session in page.sessions:
                yield SessionInfo(session)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def last_session_id(self) -> str:
        """Id of the most recently used session; empty if there is none."""
        from .bridge import v1 as bridge

        request = bridge.GetLastSessionRequest()
        return str((await self._connection.unary(self._connection.sessions.GetLastSession, request)).session_id)

    async def delete_session(self, session_id: str) -> None:
        """Deletes a session and its history."""
        from .bridge import v1 as bridge

        request = bridge.DeleteSessionRequest(session_id=session_id)
        await self._connection.unary(self._connection.sessions.DeleteSession, request)

    async def export_session(self, session_id: str, to: BinaryIO) -> bridge.ExportSessionHeader:
        """Writes the archive of a session to a binary file. The session must be at rest.

        What was written counts only if the call returns: it compares the size and the digest at the end, and raises
        CopilotError with the code DATA_LOSS if they differ.
        """
        from .bridge import v1 as bridge

        request = bridge.ExportSessionRequest(session_id=session_id)
        header, digest, size = bridge.ExportSessionHeader(), hashlib.sha256(), 0
        async for message in self._connection.stream(self._connection.sessions.ExportSession(request)):
            if message.HasField("header"):
                header = message.header
            digest.update(message.chunk)
            size += len(message.chunk)
            to.write(message.chunk)
        if size != header.size_bytes or digest.hexdigest() != header.sha256:
            text = f"the archive of session {session_id!r} was cut off or changed on its way"
            raise CopilotError(text, code="DATA_LOSS")
        return header

    async def import_session(
        self, archive: BinaryIO, *, session_id: str = "", config: cli.SessionConfig | None = None,
        provider_ref: str = "",
    ) -> bridge.ImportSessionResponse:  # fmt: skip
        """Makes a session of an archive. It is disconnected: `resume_session` opens it.

        Args:
            archive: A binary file with the archive.
            session_id: The id of the new session; default: the id of the exported one.
            config: Replaces the configuration in the archive as a whole.
            provider_ref: Name of a model provider of the server; replaces the one in the archive.
        """
        from .bridge import v1 as bridge

        header = bridge.ImportSessionHeader(session_id=session_id, config=config, provider_ref=provider_ref)

        async def pieces() -> AsyncGenerator[bridge.ImportSessionRequest, None]:
            yield bridge.ImportSessionRequest(header=header)
            while chunk := archive.read(_CHUNK):
                yield bridge.ImportSessionRequest(chunk=chunk)

        return cast(
            "bridge.ImportSessionResponse",
            await self._connection.unary(self._connection.sessions.ImportSession, pieces()),
        )

    def watch_sessions(
        self, *, labels: Mapping[str, str] | None = None, filter: bridge.SessionFilter | None = None
    ) -> Stream[SessionChange]:
        """Changes of the caller's sessions, all or those with the labels that match the filter: first one for each
        open session, then changes as they happen.

        After a broken connection the stream begins again with the open sessions.
        """
        from ._events import Stream
        from ._watch import watch_sessions

        return Stream(watch_sessions(self._connection, _labelled(filter, labels)))

    def watch_pending(
        self, *, handle: bool = False, kinds: Sequence[bridge.CallbackKind.ValueType] = (),
        labels: Mapping[str, str] | None = None, owner: str = "", name: str = "", grace: float | None = None,
    ) -> Stream[Union[PendingCallback, PendingEnd]]:  # fmt: skip
        """The callbacks that wait in all sessions, as they begin and end to wait: an inbox for people.

        Each callback is a `PendingCallback` once, and later a `PendingEnd`, also if the stream breaks meanwhile.

        Args:
            handle: Callbacks wait for this program, instead of getting their default answers when no participant
                handles them. This begins with the first change.
            kinds: Only these kinds; default: with `handle` those that people answer, else all but the frequent ones.
            labels: Only of sessions with these labels.
            owner: Only of sessions of this tenant.
            name: Name of the handler for the server's log.
            grace: Seconds for which callbacks still wait after a broken connection; default 30.
        """
        from ._events import Stream
        from ._inbox import watch_pending
        from .bridge import v1 as bridge

        filter = bridge.PendingFilter(kinds=kinds, labels=labels, owner=owner)
        request = bridge.WatchPendingRequest(filter=filter, handle=handle, name=name or self._connection.name)
        if grace is not None:
            request.grace.FromTimedelta(timedelta(seconds=grace))
        return Stream(watch_pending(self._connection, request))

    async def usage(
        self, *, by: Sequence[UsageGroup] = (), session_id: str = "", labels: Mapping[str, str] | None = None,
        filter: bridge.SessionFilter | None = None, start: datetime | None = None, end: datetime | None = None,
    ) -> list[bridge.UsageRow]:  # fmt: skip
        """What the caller's open sessions have used of models: requests, tokens, cost and turns.

        Args:
            by: One row for each combination of these; default: one row with the sum.
            session_id: Only this session.
            labels: Only sessions with these labels.
            filter: Only matching sessions.
            start: The first day is the day of this time, in UTC.
            end: The last day is the day of this time, in UTC.
        """
        from .bridge import v1 as bridge

        request = bridge.GetUsageRequest(
            session_id=session_id, filter=_labelled(filter, labels),
            group_by=[bridge.UsageGroup.Value(f"USAGE_GROUP_{group.upper()}") for group in by],
        )  # fmt: skip
        if start is not None:
            request.start_time.FromDatetime(start)
        if end is not None:
            request.end_time.FromDatetime(end)
        return list((await self._connection.unary(self._connection.sessions.GetUsage, request)).rows)

    # The server.

    async def server_info(self) -> bridge.GetServerInfoResponse:
        """The server's version, capabilities and limits."""
        from .bridge import v1 as bridge

        request = bridge.GetServerInfoRequest()
        return await self._connection.unary(self._connection.runtimes.GetServerInfo, request)  # type: ignore[no-any-return]

    async def ping(self) -> bridge.PingResponse:
        """Pings the CLI, and starts it if it does not run."""
        from .bridge import v1 as bridge

        return await self._connection.unary(self._connection.runtimes.Ping, bridge.PingRequest())  # type: ignore[no-any-return]

    async def auth_status(self) -> bridge.GetAuthStatusResponse:
        """Whether the CLI is signed in to GitHub, and as whom."""
        from .bridge import v1 as bridge

        request = bridge.GetAuthStatusRequest()
        return await self._connection.unary(self._connection.runtimes.GetAuthStatus, request)  # type: ignore[no-any-return]

    async def list_models(self, *, github_token: str = "") -> list[cli.Model]:
        """The models of the signed-in account, or of the token's account."""
        from .bridge import v1 as bridge

        request = bridge.ListModelsRequest(github_token=github_token)
        return list((await self._connection.unary(self._connection.runtimes.ListModels, request)).models)

    async def pending(self) -> list[PendingCallback]:
        """The pending callbacks of all sessions, oldest first."""
        from ._inbox import pending

        return await pending(self._connection)


def _labelled(filter: bridge.SessionFilter | None, labels: Mapping[str, str] | None) -> bridge.SessionFilter | None:
    """A filter that also selects by labels."""
    if not labels:
        return filter
    from .bridge import v1 as bridge

    both = bridge.SessionFilter()
    if filter is not None:
        both.CopyFrom(filter)
    both.labels.update(labels)
    return both


def _choose(target: str | None, launch: bool | None) -> tuple[str, bool]:
    """The target, and whether to start a server instead."""
    if launch and target:
        raise ValueError("give either a target, or launch=True")
    found = target or ("" if launch else os.environ.get("COPILOT_GRPC_TARGET", ""))
    if found or launch:
        check_target(found)
        return found, bool(launch)
    socket = default_socket()
    return f"unix:{socket}", launch is None and not _is_listening(socket)


def _is_listening(path: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


async def _launch(
    binary: Union[str, os.PathLike[str]], args: Sequence[str], env: Mapping[str, str] | None
) -> ServerProcess:
    from ._server import ServerProcess

    server = ServerProcess(binary=binary, args=args, env=env)
    await server.start()
    return server
