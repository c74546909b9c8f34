"""Turns: a prompt and what the agent makes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._events import Cursor, Event, Gap, Reader, Stream, is_told, silence_of
from ._position import Position
from ._retry import Backoff
from .bridge import v1 as bridge
from .errors import ConnectionLost, CopilotError, TurnFailed

if TYPE_CHECKING:
    from ._session import Session

_log = logging.getLogger("copilot_grpc")

Status = Literal["completed", "aborted", "failed", "stalled", "runtime_lost", "timed_out", "unknown"]


@dataclass(frozen=True)
class Outcome:
    """The end of a turn.

    Attributes:
        status: "completed", "aborted", "failed", "stalled", "runtime_lost", or "timed_out" if only the wait ended.
        text: The agent's last message; empty if there is none.
        message_id: Id of the prompt.
        error: The cause of a turn that did not complete, and what to do; None if there is none.
        message_position: Position of the agent's last message; None if there is none.
        end_position: Position of the turn's end; None if the turn continues.
    """

    status: Status
    text: str
    message_id: str
    error: bridge.TurnError | None = None
    message_position: Position | None = None
    end_position: Position | None = None

    @property
    def ok(self) -> bool:
        """Whether the turn completed."""
        return self.status == "completed"

    def raise_for_status(self) -> None:
        """Raises TurnFailed unless the turn completed."""
        if not self.ok:
            raise TurnFailed(self)

    @classmethod
    def of(cls, message_id: str, outcome: bridge.TurnOutcome) -> Outcome:
        """The outcome of a message."""
        known = outcome.status in bridge.TurnStatus.values() and outcome.status
        name = bridge.TurnStatus.Name(outcome.status).removeprefix("TURN_STATUS_").lower() if known else "unknown"
        return cls(
            status=name,  # type: ignore[arg-type]
            text=outcome.text,
            message_id=message_id,
            error=outcome.error if outcome.HasField("error") else None,
            message_position=Position.of(outcome.message_position) if outcome.HasField("message_position") else None,
            end_position=Position.of(outcome.end_position) if outcome.HasField("end_position") else None,
        )


class Turn:
    """A turn that is read while it happens: `async for event in turn`, `turn.deltas()`, `await turn`.

    The prompt is sent when reading starts, once, however often the stream breaks. A turn can be iterated once. Leaving
    the iteration ends the reading; the turn continues in the server.
    """

    def __init__(self, session: Session, request: Any, *, abort_on_cancel: bool) -> None:
        """`request` is a coroutine function that makes the RunRequest."""
        self._session, self._make_request, self._abort_on_cancel = session, request, abort_on_cancel
        self._events: Stream[Event] | None = None
        self._outcome: Outcome | None = None

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._events is not None:
            raise RuntimeError("the turn's events have been read")
        self._events = Stream(self._read())
        return self._events.__aiter__()

    def deltas(self) -> Stream[str]:
        """The agent's text as it arrives, in pieces. A message that was not streamed is one piece."""
        return Stream(self._deltas())

    async def outcome(self) -> Outcome:
        """The end of the turn. Reads the rest of the turn if nothing else does."""
        if self._events is None:
            self.__aiter__()
        if self._outcome is None and self._events is not None:
            async for _ in self._events:
                pass
        if self._outcome is None:
            raise ConnectionLost("the turn was not read to its end")
        return self._outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self.outcome().__await__()

    async def _deltas(self) -> AsyncGenerator[str, None]:
        streamed: set[str] = set()
        async for event in self:
            if event.message.event.agent_id:
                continue  # only the session's own agent
            data = event.data
            if event.type == "assistant.message_delta":
                streamed.add(data.message_id)
                yield data.delta_content
            elif event.type == "assistant.message" and data.message_id not in streamed and data.content:
                yield data.content

    async def _read(self) -> AsyncGenerator[Event, None]:
        try:
            request = await self._make_request()
            cursor = Cursor(
                self._session.connection, request.session_id, self._session.progress,
                after=None, tail=False, filter=None, options=None,
            )  # fmt: skip
            connection = self._session.connection
            backoff = Backoff(connection.reconnect)
            while True:
                reader = Reader(connection.sessions.Run(request), silence_of(request.options))
                try:
                    with self._session.explained():
                        async for event in self._frames(reader, cursor, backoff):
                            yield event
                    if self._outcome is not None:
                        return
                    cause: CopilotError = ConnectionLost("the server ended the turn's stream without an outcome")
                except CopilotError as error:
                    cause = error
                finally:
                    reader.close()
                if not cause.is_broken or not await backoff.wait(cause):
                    raise cause
        except asyncio.CancelledError:
            if self._abort_on_cancel:
                await self._session.abort_detached()
            raise

    async def _frames(self, reader: Reader, cursor: Cursor, backoff: Backoff) -> AsyncGenerator[Event, None]:
        message_id = ""
        while (frame := await reader.read()) is not None:
            backoff.reset()
            match frame.WhichOneof("frame"):
                case "progress":
                    _log.info("waiting for the server: %s", frame.progress.detail)
                case "started":
                    message_id = frame.started.message_id
                    self._session.progress.note(frame.started.position)
                case "outcome":
                    self._session.progress.note(frame.outcome.end_position)
                    self._outcome = Outcome.of(message_id, frame.outcome)
                    return
                case "stream":
                    if frame.stream.HasField("go_away"):
                        return
                    if not cursor.note(frame.stream):
                        continue
                    if frame.stream.HasField("gap") and is_told(frame.stream.gap, False):
                        yield Gap(frame.stream.gap)
                    for message in frame.stream.events.events:
                        yield Event(message)
