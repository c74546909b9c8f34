"""The participation of this program in a session: one Attach stream after another."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from ._await import within
from ._calls import Calls
from ._client import CALL_POLICY, Connection
from ._handlers import Handlers
from ._link import HEARTBEAT, SILENCE, Link
from ._position import Progress
from ._retry import Backoff, Reconnect, repeat
from .bridge import v1 as bridge
from .errors import (
    ConnectionLost,
    CopilotError,
    DeadlineExceeded,
    ParticipantNotFound,
    SessionClosed,
    SessionNotFound,
    from_failure,
)
from .model import Models
from .options import ParticipantOptions
from .tools import Tool

_log = logging.getLogger("copilot_grpc")
# Time for which `leave` waits for the server.
LEAVE_TIMEOUT = 5.0
_CLOSE_REASON = "CLOSE_REASON_"


@dataclass(frozen=True)
class Disconnected:
    """The stream broke; the library reconnects."""

    error: CopilotError


@dataclass(frozen=True)
class Reconnected:
    """The stream is open again.

    Attributes:
        participant_id: The participant, which changes after a `ParticipantExpired`.
    """

    participant_id: str


@dataclass(frozen=True)
class ParticipantExpired:
    """The participant's grace time passed before the stream was open again. The program joined as a new participant;
    callbacks that waited for the old one may have been given their default answers.

    Attributes:
        participant_id: The expired participant.
    """

    participant_id: str


class _GoAway(Exception):
    """The server asks to open a new stream."""


class Participant:
    """Keeps the participation alive: opens streams, reads frames, and hands callbacks to `Calls`."""

    def __init__(
        self, connection: Connection, options: ParticipantOptions, handlers: Handlers, models: Models | None
    ) -> None:
        self._connection, self._options, self.handlers, self._models = connection, options, handlers, models
        self.calls = Calls(
            handlers,
            max_tools=options.get("max_concurrent_tools", 16),
            policy=connection.reconnect,
            link=self._live_link,
            live=self.live,
            read_whole=connection.read_callback,
        )
        self.progress = Progress()
        self.session_id = ""
        self.participant_id = ""
        self._token = ""
        self._link: Link | None = None
        self._links: set[Link] = set()  # to be closed
        self._changed = asyncio.Event()
        self._commands: dict[str, asyncio.Future[CopilotError | None]] = {}
        self._leaving = False
        self._has_left = False  # the server has no such participant any more
        self._is_ending = False  # the task cleans up, and must not be cancelled
        self._task: asyncio.Task[None] | None = None
        self._setting_tools = asyncio.Lock()
        # The reason for the end of the participation.
        self.ended: asyncio.Future[CopilotError] = asyncio.get_running_loop().create_future()

    async def open(self, start: bridge.AttachStart, policy: Reconnect) -> bridge.AttachStarted:
        """Opens the first stream. The request id in `start` makes it safe to repeat."""
        self._complete(start)

        async def attempt() -> tuple[Link, bridge.AttachStarted]:
            return await self._dial(start)

        try:
            link, started = await repeat(policy, attempt)
        except BaseException:
            await self.calls.close()  # of callbacks while the session was being opened
            raise
        self._adopt(link, started)
        self._task = asyncio.create_task(self._run(link), name=f"copilot-grpc session {self.session_id}")
        return started

    async def live(self) -> Link:
        """Waits for a link. Raises the reason when the participation is over."""
        while True:
            if self.ended.done():
                raise self.ended.result()
            if (link := self._live_link()) is not None:
                return link
            await self._changed.wait()

    def _live_link(self) -> Link | None:
        # A link that could not be written to stays the current one until its reader has noticed.
        return None if self._link is None or self._link.is_down else self._link

    async def leave(self, disconnect: bool = False) -> None:
        """Ends the participation and tells the server, over the link or by a call. Takes LEAVE_TIMEOUT at most."""
        self._leaving = True
        if self._task is None or self._has_left:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + LEAVE_TIMEOUT
        if self._link is not None:
            await self._link.send(bridge.AttachRequest(leave=bridge.AttachLeave(disconnect=disconnect)))
            await asyncio.wait([self._task], timeout=LEAVE_TIMEOUT)
        if not self._is_ending:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._has_left or not self._token:
            return
        self._has_left = True  # one attempt
        await self._leave_by_call(deadline - clock())

    async def _leave_by_call(self, seconds: float) -> None:
        """Leaves without a link, as soon as the server can be reached."""
        request = bridge.LeaveRequest(session_id=self.session_id, participant_token=self._token)
        policy = replace(CALL_POLICY, give_up_after=seconds)
        failure: CopilotError | str = "no answer"

        async def attempt() -> None:
            nonlocal failure
            try:
                await self._connection.unary(self._connection.callbacks.Leave, request)
            except CopilotError as error:
                failure = error
                raise

        try:
            await within(seconds, repeat(policy, attempt))
        except (SessionNotFound, ParticipantNotFound):
            pass
        except (asyncio.TimeoutError, CopilotError):
            _log.warning(
                "session %s not left, its server keeps the participant until the grace time has passed: %s",
                self.session_id, failure, extra={"session_id": self.session_id},
            )  # fmt: skip

    async def set_tools(self, tools: dict[str, Tool[..., object]]) -> None:
        """Replaces the participant's tools, here and on the server."""
        async with self._setting_tools:
            before, self.handlers.tools = self.handlers.tools, dict(tools)
            try:
                definitions = self.handlers.declared_tools(False)
                await self._command(bridge.AttachCommand(set_tools=bridge.SetToolsCommand(tools=definitions)))
            except CopilotError:
                self.handlers.tools = before
                raise

    async def _command(self, command: bridge.AttachCommand) -> None:
        link = await self.live()
        command.command_id = uuid.uuid4().hex
        reply = asyncio.get_running_loop().create_future()
        self._commands[command.command_id] = reply
        try:
            await link.send(bridge.AttachRequest(command=command))
            failure = None if link.is_down else await reply
        finally:
            del self._commands[command.command_id]
        if failure is not None:
            raise failure
        await self.live()  # a new link starts with the new tools

    # Streams.

    def _complete(self, start: bridge.AttachStart) -> None:
        """Sets what every start frame of this participant has."""
        options = self._options
        start.name = options.get("name", "") or self._connection.name
        del start.tools[:], start.commands[:], start.canvases[:]
        start.tools.extend(self.handlers.declared_tools(False))
        start.handlers.CopyFrom(self.handlers.announced())
        start.commands.extend(options.get("commands", ()))
        start.canvases.extend(options.get("canvases", ()))
        if provider := options.get("canvas_provider"):
            start.canvas_provider.CopyFrom(provider)
        if extension := options.get("extension_info"):
            start.extension_info.CopyFrom(extension)
        if grace := options.get("grace"):
            start.grace.FromTimedelta(timedelta(seconds=grace))
        start.start = bridge.StreamStart.STREAM_START_END
        start.filter.exclude_all = True  # events have streams of their own
        start.options.heartbeat_interval.CopyFrom(Duration(seconds=int(HEARTBEAT)))

    async def _dial(self, start: bridge.AttachStart) -> tuple[Link, bridge.AttachStarted]:
        link = Link(self._connection.callbacks, heartbeat=HEARTBEAT, silence=SILENCE)
        self._links.add(link)
        try:
            await link.send(bridge.AttachRequest(start=start))
            while True:
                frame = await link.read()
                if frame.HasField("started"):
                    return link, frame.started
                if frame.HasField("opening"):
                    self._opening(link, frame.opening)
                elif frame.HasField("progress"):
                    _log.info("waiting for the server: %s", frame.progress.detail)
                else:
                    self._take(frame)
        except BaseException as error:
            self._set_link(None, only=link)
            self.calls.link_down()  # answers that were sent while the session was being opened are sent again
            await self._close(link)
            if isinstance(error, _GoAway):
                raise ConnectionLost("the server asks to reconnect") from None
            raise

    async def _close(self, link: Link) -> None:
        await link.close()
        self._links.discard(link)

    def _opening(self, link: Link, opening: bridge.AttachOpening) -> None:
        """The server needs answers to open the session."""
        self.session_id, self.participant_id, self._token = (
            opening.session_id, opening.participant_id, opening.participant_token,
        )  # fmt: skip
        self._set_link(link)

    def _adopt(self, link: Link, started: bridge.AttachStarted) -> None:
        self.session_id = started.session.session_id
        self.participant_id, self._token = started.participant_id, started.participant_token
        self.progress.note(started.session.position)
        self._set_link(link)

    def _set_link(self, link: Link | None, only: Link | None = None) -> None:
        if only is not None and self._link is not only:
            return
        self._link = link
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self, link: Link) -> None:
        """Serves one link after another until the participation is over."""
        error: CopilotError = SessionClosed(self.session_id, "closed")
        try:
            while True:
                cause = await self._serve(link)
                if cause is not None and not cause.is_broken:
                    self._has_left = True
                    if not self._leaving:
                        error = cause
                    return
                if self._leaving:
                    return
                link = await self._reopen(link, cause)
        except CopilotError as failure:
            error, self._has_left = failure, not failure.is_broken
        finally:
            self._is_ending = True
            for link in list(self._links):
                await self._close(link)
            if not self.ended.done():
                self.ended.set_result(error)
            self._set_link(None)
            await self.calls.close()
            if self._models is not None:
                await self._models.close()

    async def _serve(self, link: Link) -> CopilotError | None:
        """Reads a link until it ends. Returns None if the server asks for a new stream."""
        try:
            while True:
                self._take(await link.read())
        except _GoAway:
            return None
        except CopilotError as error:
            return error
        finally:
            self._set_link(None, only=link)
            link.down()
            self.calls.link_down()
            for reply in self._commands.values():
                if not reply.done():
                    reply.set_result(None)

    async def _reopen(self, old: Link, cause: CopilotError | None) -> Link:
        """Opens a link in place of an old one, and closes the old one only then."""
        if cause is not None:
            _log.warning("attach stream broken: %s", cause, extra={"session_id": self.session_id})
            self._tell(Disconnected(cause))
        backoff = Backoff(self._connection.reconnect)
        failure: CopilotError = ConnectionLost(cause.message if cause else "the server asks to reconnect")
        if cause is not None and cause.token_replaced:
            failure = cause  # a reason for one attempt
        try:
            while await backoff.wait(failure):
                try:
                    link, started = await within(SILENCE, self._dial(self._rejoin()))
                except asyncio.TimeoutError:
                    failure = DeadlineExceeded("the server does not answer")
                except ParticipantNotFound:
                    if not self._token:
                        raise
                    self._token = ""
                    self._tell(ParticipantExpired(self.participant_id))
                except CopilotError as error:
                    if not error.is_broken:
                        raise
                    failure = error
                else:
                    self._adopt(link, started)
                    _log.info("attach stream restored", extra={"session_id": self.session_id})
                    self._tell(Reconnected(self.participant_id))
                    return link
            raise cause or failure
        finally:
            await self._close(old)

    def _rejoin(self) -> bridge.AttachStart:
        start = bridge.AttachStart(join_session_id=self.session_id, participant_token=self._token)
        if self.progress.last is not None:
            start.after.CopyFrom(self.progress.last.message())
        self._complete(start)
        return start

    def _tell(self, change: object) -> None:
        if listener := self._options.get("on_connection"):
            try:
                listener(change)
            except Exception:
                _log.warning(
                    "on_connection failed (session %s)", self.session_id, exc_info=True,
                    extra={"session_id": self.session_id},
                )  # fmt: skip

    # Frames. Nothing here waits.

    def _take(self, frame: bridge.AttachResponse) -> None:
        match frame.WhichOneof("frame"):
            case "stream":
                self._take_stream(frame.stream)
            case "done":
                self.progress.note(frame.done.position)
                self._replied(frame.done, None)
            case "failed":
                failure = from_failure(frame.failed.failure)
                if frame.failed.HasField("model_request_id") and self._models is not None:
                    self._models.end(frame.failed.model_request_id)
                else:
                    self._replied(frame.failed, failure)

    def _replied(self, reply: bridge.AttachDone | bridge.AttachFailed, failure: CopilotError | None) -> None:
        if reply.HasField("callback_id"):
            self.calls.settle(reply.callback_id, failure)
        elif (waiting := self._commands.get(reply.command_id)) is not None and not waiting.done():
            waiting.set_result(failure)

    def _take_stream(self, frame: bridge.SubscribeResponse) -> None:
        self.progress.note(frame.resume_after)
        match frame.WhichOneof("frame"):
            case "started":
                self.calls.reconcile(frame.started.pending_callbacks, self.participant_id)
            case "gap":
                self.calls.reconcile(frame.gap.pending_callbacks, self.participant_id)
            case "callback_requested":
                requested = frame.callback_requested
                self.calls.ask(requested.callback, requested.offered)
            case "callback_resolved":
                self.calls.withdraw(frame.callback_resolved.callback_id)
            case "runtime_restarted":
                _log.warning("runtime restarted: %s", frame.runtime_restarted.cause)
            case "go_away":
                raise _GoAway
            case "closed":
                raise self._closed(frame.closed.reason)

    def _closed(self, reason: bridge.CloseReason.ValueType) -> CopilotError:
        if reason == bridge.CloseReason.CLOSE_REASON_DRAINING:
            return ConnectionLost("the server is draining")
        known = reason in bridge.CloseReason.values()
        name = bridge.CloseReason.Name(reason).removeprefix(_CLOSE_REASON).lower() if known else str(reason)
        return SessionClosed(self.session_id, name)
