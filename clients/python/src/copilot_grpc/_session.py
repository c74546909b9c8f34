"""Sessions: one conversation with an agent."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._client import Connection
from ._events import Cursor, Event, Gap, Stream, events_of, filter_of, is_told
from ._handlers import by_name
from ._inbox import PendingCallback, pending
from ._info import SessionInfo
from ._participant import Participant
from ._position import Position, Progress
from ._prompts import AnyAttachment, Prompt, has_large, make_prompt, send_pieces
from ._retry import repeat
from ._turn import Outcome, Turn
from .bridge import v1 as bridge
from .errors import CopilotError, SessionClosed, SessionNotFound
from .tools import Tool

if TYPE_CHECKING:
    from .cli import v1 as cli

_ABORT_TIMEOUT = 5.0


@dataclass(frozen=True)
class Receipt:
    """The CLI accepted a prompt.

    Attributes:
        message_id: Id of the message.
        position: The journal's last position at that time: the turn's events are later.
        in_memory_only: The server could not write the prompt to its disk.
    """

    message_id: str
    position: Position
    in_memory_only: bool = False


class Session:
    """A session, as a participant or as a handle without tools and handlers. Its methods may run concurrently."""

    def __init__(
        self, connection: Connection, session_id: str, participant: Participant | None, info: bridge.Session,
        forget: Callable[[Session], None], tail: bool,
    ) -> None:  # fmt: skip
        """Not for programs: `Client` makes sessions."""
        self.connection = connection
        self.progress = participant.progress if participant else Progress()
        self._id, self._participant, self._info, self._forget = session_id, participant, SessionInfo(info), forget
        # How this program ended the session, for the error of a later call.
        self._end_text = ""
        self._begin = Position.of(info.position) if tail else None
        self._closed: asyncio.Future[CopilotError] = asyncio.get_running_loop().create_future()

    # Properties.

    @property
    def id(self) -> str:
        """The session's id."""
        return self._id

    @property
    def info(self) -> SessionInfo:
        """The session when it was opened; for a handle, only its id. `get` returns its current state."""
        return self._info

    @property
    def participant_id(self) -> str:
        """Id of this participant; empty for a handle. It changes after a `ParticipantExpired`."""
        return self._participant.participant_id if self._participant else ""

    @property
    def position(self) -> Position | None:
        """The latest position that this program has seen."""
        return self.progress.last

    @property
    def ended(self) -> CopilotError | None:
        """The reason why the participation is over; None while it continues."""
        if self._participant is not None and self._participant.ended.done():
            return self._participant.ended.result()
        return self._closed.result() if self._closed.done() else None

    async def wait_ended(self) -> CopilotError:
        """Waits until the participation is over and returns the reason."""
        ended = self._participant.ended if self._participant else self._closed
        return await asyncio.shield(ended)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Prompts.

    async def send(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        request_id: str | None = None, timeout: float | None = None,
    ) -> Receipt:  # fmt: skip
        """Sends a prompt and returns when the CLI has accepted it.

        Args:
            prompt: The text, or a message with further fields.
            attachments: Attachments; large ones and streams are sent in pieces.
            immediate: Steers the running turn instead of waiting for its end.
            request_id: Makes the call idempotent across restarts of this program; default: a random id.
            timeout: Seconds for each attempt.
        """
        large = has_large(attachments)
        message = await make_prompt(prompt, attachments, immediate, inline=not large)
        request = bridge.SendRequest(request_id=_id(request_id), session_id=self._id, prompt=message)
        if not large:
            return self._receipt(await self._repeat(self.connection.sessions.Send, request, timeout))
        # A stream can be read once, so that the call is not repeated.
        pieces, method = send_pieces(request, attachments), self.connection.sessions.SendStream
        with self.explained():
            return self._receipt(await self.connection.unary(method, pieces, progress=self.progress, timeout=timeout))

    async def send_and_wait(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        idle_timeout: float | None = None, timeout: float | None = None, request_id: str | None = None,
        abort_on_cancel: bool = False,
    ) -> Outcome:  # fmt: skip
        """Sends a prompt and waits until the turn has ended. A turn that fails is an outcome, not an exception.

        Args:
            prompt: The text, or a message with further fields.
            attachments: Attachments.
            immediate: Steers the running turn instead of waiting for its end.
            idle_timeout: Seconds without an event after which the outcome is "timed_out". Time in which a tool, a
                callback or a shell runs does not count.
            timeout: Seconds after which the outcome is "timed_out". The turn continues.
            request_id: Makes the call idempotent across restarts of this program; default: a random id.
            abort_on_cancel: Stops the turn if the task is cancelled.
        """
        message = await make_prompt(prompt, attachments, immediate)
        request = bridge.SendAndWaitRequest(request_id=_id(request_id), session_id=self._id, prompt=message)
        if idle_timeout is not None:
            request.idle_timeout.FromTimedelta(timedelta(seconds=idle_timeout))
        if timeout is not None:
            request.timeout.FromTimedelta(timedelta(seconds=timeout))
        try:
            with self.explained():
                response = await repeat(
                    self.connection.reconnect,
                    lambda: self.connection.unary(
                        self.connection.sessions.SendAndWait, request, progress=self.progress, wait=True
                    ),
                )
        except asyncio.CancelledError:
            if abort_on_cancel:
                await self.abort_detached()
            raise
        self.progress.note(response.outcome.end_position)
        return Outcome.of(response.message_id, response.outcome)

    def run(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        filter: bridge.EventFilter | None = None, options: bridge.StreamOptions | None = None,
        request_id: str | None = None, abort_on_cancel: bool = False,
    ) -> Turn:  # fmt: skip
        """Prepares to send a prompt and to read its turn. Reading the turn sends the prompt.

        Args:
            prompt: The text, or a message with further fields.
            attachments: Attachments.
            immediate: Steers the running turn instead of waiting for its end.
            filter: Events to read; default: all except the large types.
            options: Fidelity, original JSON and other options of the events.
            request_id: Makes the send idempotent across restarts of this program; default: a random id.
            abort_on_cancel: Stops the turn if the reading task is cancelled.
        """

        async def request() -> bridge.RunRequest:
            message = await make_prompt(prompt, attachments, immediate)
            return bridge.RunRequest(
                request_id=_id(request_id), session_id=self._id, prompt=message, filter=filter, options=options
            )

        return Turn(self, request, abort_on_cancel=abort_on_cancel)

    async def abort(self) -> bool:
        """Stops the running turn and removes queued prompts. Returns whether a turn was running."""
        response = await self._call(self.connection.sessions.Abort, bridge.AbortRequest(session_id=self._id))
        return bool(response.turn_was_running)

    async def abort_detached(self) -> None:
        """Aborts in a task that the caller's cancellation does not reach, for a short time at most."""
        task = asyncio.ensure_future(self.abort())
        await asyncio.wait([task], timeout=_ABORT_TIMEOUT)
        if task.done() and not task.cancelled():
            task.exception()  # the caller's cancellation matters more

    # Events.

    def events(
        self, *, after: Position | None = None, start: Literal["opened", "beginning", "now"] = "opened",
        types: Sequence[str] | None = None, exclude: Sequence[str] | None = None,
        filter: bridge.EventFilter | None = None, options: bridge.StreamOptions | None = None,
        ephemeral_gaps: bool = False,
    ) -> Stream[Event]:  # fmt: skip
        """The session's events: past ones, then live ones, until the session or this participation is over.

        The stream continues after broken connections, without duplicates. Missing events appear as a `Gap`. A slow
        reader delays nothing.

        Args:
            after: Starts after this position.
            start: Otherwise: at the position where this program opened the session (a created session and a handle:
                the first event), at the first event, or at the next one.
            types: Only these types ("assistant.message", or "assistant.*").
            exclude: Not these types.
            filter: The complete filter, instead of `types` and `exclude`.
            options: Fidelity, original JSON and other options.
            ephemeral_gaps: Also yields gaps of ephemeral events.
        """
        selected = filter_of(types, exclude, filter)
        return Stream(events_of(self._frames(after, start, selected, options), ephemeral_gaps))

    def frames(
        self, *, after: Position | None = None, start: Literal["opened", "beginning", "now"] = "opened",
        filter: bridge.EventFilter | None = None, options: bridge.StreamOptions | None = None, callbacks: bool = False,
    ) -> Stream[bridge.SubscribeResponse]:  # fmt: skip
        """`events` with all frames of the stream: the end of the replay, ends of turns, restarts, and, with
        `callbacks`, pending callbacks."""
        return Stream(self._frames(after, start, filter, options, callbacks))

    def _frames(
        self, after: Position | None, start: str, filter: bridge.EventFilter | None,
        options: bridge.StreamOptions | None, callbacks: bool = False,
    ) -> AsyncGenerator[bridge.SubscribeResponse, None]:  # fmt: skip
        if start == "opened":
            after = after or self._begin
        cursor = Cursor(
            self.connection, self._id, self.progress, after=after, tail=start == "now",
            filter=filter, options=options, callbacks=callbacks,
        )  # fmt: skip
        return cursor.frames(self._closed)

    def history(
        self, *, after: Position | None = None, types: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None, filter: bridge.EventFilter | None = None,
    ) -> Stream[Event]:  # fmt: skip
        """The events that the journal has, from the first one or after a position, up to the last one."""
        return Stream(self._history(after, filter_of(types, exclude, filter)))

    async def _history(self, after: Position | None, filter: bridge.EventFilter | None) -> AsyncGenerator[Event, None]:
        request = bridge.ListEventsRequest(session_id=self._id, filter=filter)
        if after is not None:
            request.after.CopyFrom(after.message())
        while True:
            page = await self._call(self.connection.sessions.ListEvents, request)
            if page.HasField("gap") and is_told(page.gap, False):
                yield Gap(page.gap)
            for message in page.events:
                yield Event(message)
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def read_event(self, position: Position) -> bytes:
        """The whole JSON of an event, for one that was truncated."""
        request = bridge.ReadEventRequest(session_id=self._id, position=position.message())
        stream = self.connection.stream(self.connection.sessions.ReadEvent(request))
        with self.explained():
            return b"".join([piece.json_chunk async for piece in stream])

    # The session itself.

    async def get(self) -> SessionInfo:
        """The session's current state."""
        request = bridge.GetSessionRequest(session_id=self._id)
        return SessionInfo((await self._call(self.connection.sessions.GetSession, request)).session)

    async def set_model(self, model_id: str, *, reasoning_effort: str = "") -> str:
        """Changes the model from the next turn on. Returns the model in use, if the CLI reports it."""
        request = bridge.SetModelRequest(session_id=self._id, model_id=model_id, reasoning_effort=reasoning_effort)
        return str((await self._call(self.connection.sessions.SetModel, request)).model_id)

    async def log(
        self, message: str, *, level: cli.SessionLogLevel.ValueType | None = None, ephemeral: bool = False,
        url: str = "",
    ) -> str:  # fmt: skip
        """Writes a line to the session's timeline, for its users, not for the model. Returns the event's id."""
        request = bridge.WriteLogRequest(session_id=self._id, message=message, ephemeral=ephemeral, url=url)
        if level is not None:
            request.level = level
        return str((await self._call(self.connection.sessions.WriteLog, request)).event_id)

    async def update_provider(self, provider: cli.ProviderConfig, *, fields: Sequence[str] = ()) -> None:
        """Changes fields of the model provider from the next turn on; default: the fields with a value."""
        request = bridge.UpdateProviderRequest(session_id=self._id, provider=provider)
        request.update_mask.paths.extend(fields)
        await self._call(self.connection.sessions.UpdateProvider, request)

    async def provide_credentials(self, *, provider: cli.ProviderConfig | None = None, github_token: str = "") -> None:
        """Sets secrets that the server lost in a restart."""
        request = bridge.ProvideCredentialsRequest(session_id=self._id, provider=provider, github_token=github_token)
        await self._call(self.connection.sessions.ProvideCredentials, request)

    async def update_labels(
        self, set: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()
    ) -> dict[str, str]:
        """Sets and removes labels, and leaves the others as they are. Returns the session's labels."""
        request = bridge.UpdateLabelsRequest(session_id=self._id, set=set, remove=remove)
        return dict((await self._call(self.connection.sessions.UpdateLabels, request)).session.labels)

    async def pending(self) -> list[PendingCallback]:
        """The pending callbacks, oldest first."""
        with self.explained():
            return await pending(self.connection, self._id, self.progress)

    async def resolve(self, callback_id: str, answer: bridge.Answer) -> None:
        """Answers any callback of the session by its id. `copilot_grpc.answers` makes answers."""
        request = bridge.ResolveRequest(
            session_id=self._id, callback_id=callback_id, answer=answer, request_id=_id(None)
        )
        await self._repeat(self.connection.callbacks.Resolve, request, None)

    async def set_tools(self, tools: Sequence[Tool[..., Any]]) -> None:
        """Replaces this participant's tools. Running calls continue."""
        if self._participant is None:
            raise ValueError("a handle has no tools: join the session")
        await self._participant.set_tools(by_name(tools))

    async def close(self) -> None:
        """Leaves the session: its tools go, its handlers are cancelled, its event streams end. The session continues
        unless its lifetime ends with its last participant. Closing again does nothing."""
        await self._end(disconnect=False)

    async def disconnect(self) -> None:
        """Leaves the session and closes it in the server, unless other participants are attached: its turn is aborted,
        and only `Client.resume_session` opens it again. Its history stays."""
        if self._participant is None or self._participant.ended.done():
            request = bridge.DisconnectSessionRequest(session_id=self._id)
            await self._call(self.connection.sessions.DisconnectSession, request)
            await self._end(disconnect=False)
        else:
            await self._participant.live()  # a participant whose stream is broken still counts
            await self._end(disconnect=True)
        self._end_text = "this program has disconnected the session: Client.resume_session opens it again"

    async def delete(self) -> None:
        """Deletes the session and its history."""
        request = bridge.DeleteSessionRequest(session_id=self._id)
        await self._call(self.connection.sessions.DeleteSession, request)
        self._end_text = "this program has deleted the session"
        await self._end(disconnect=False)

    async def _end(self, disconnect: bool) -> None:
        self._forget(self)
        if not self._closed.done():
            self._closed.set_result(SessionClosed(self._id, "closed"))
        if self._participant is not None:
            await self._participant.leave(disconnect)

    # Calls.

    async def _call(self, method: Any, request: Any) -> Any:
        with self.explained():
            return await self.connection.unary(method, request, progress=self.progress)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Lets the error of a session that is not found say that this program has ended the session."""
        try:
            yield
        except SessionNotFound as error:
            if self._end_text:
                error.message = f"{error.message}: {self._end_text}"
            raise

    async def _repeat(self, method: Any, request: Any, timeout: float | None) -> Any:
        """Makes a call that its request id makes idempotent."""
        with self.explained():
            return await repeat(
                self.connection.call_policy,
                lambda: self.connection.unary(method, request, progress=self.progress, timeout=timeout),
            )

    def _receipt(self, response: bridge.SendResponse | bridge.SendStreamResponse) -> Receipt:
        self.progress.note(response.position)
        message_id = response.resent_message_id or response.message_id
        return Receipt(message_id, Position.of(response.position), response.in_memory_only)


def _id(request_id: str | None) -> str:
    return request_id or uuid.uuid4().hex
