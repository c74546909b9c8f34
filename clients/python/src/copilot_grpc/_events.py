"""Events of sessions, and streams of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import grpc.aio

from ._authorized import failure_of
from ._client import Connection
from ._link import SILENCE
from ._position import Position, Progress
from ._retry import Backoff
from .bridge import v1 as bridge
from .errors import ConnectionLost, CopilotError

T = TypeVar("T")


class Event:
    """An event of a session.

    Attributes:
        message: The event as a message, with timestamp, ids and original JSON.
    """

    __slots__ = ("message",)

    def __init__(self, message: bridge.Event) -> None:
        self.message = message

    @property
    def type(self) -> str:
        """The CLI's name of the type, such as "assistant.message"."""
        return self.message.event.event_type

    @property
    def position(self) -> Position:
        """Position in the session's journal."""
        return Position(self.message.position.epoch, self.message.position.seq)

    @property
    def data(self) -> Any:
        """The typed data, such as AssistantMessageData; the JSON text for a type that is newer than this library."""
        event = self.message.event
        case = event.WhichOneof("data")
        return getattr(event, case) if case else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.position} {self.type}>"


class Gap(Event):
    """Missing events, in the place where they would be. `type` is "gap", and `position` the last missing one.

    Streams leave out gaps of ephemeral events, such as the deltas of old turns, unless `ephemeral_gaps` is set.

    Attributes:
        gap: The gap as a message, with the session's current state to restart from.
    """

    __slots__ = ("gap",)

    def __init__(self, gap: bridge.Gap) -> None:
        super().__init__(bridge.Event(position=gap.through))
        self.gap = gap

    @property
    def type(self) -> str:
        """The text "gap", which no event of the CLI has."""
        return "gap"

    @property
    def data(self) -> None:
        """None."""
        return None

    @property
    def after(self) -> Position:
        """The last position before the missing events."""
        return Position.of(self.gap.after)

    @property
    def reason(self) -> str:
        """The reason: "ephemeral_lost", "trimmed" or "epoch_ended"."""
        reasons = bridge.GapReason
        known = self.gap.reason in reasons.values()
        return reasons.Name(self.gap.reason).removeprefix("GAP_REASON_").lower() if known else str(self.gap.reason)


class Stream(Generic[T], AsyncIterator[T]):
    """A stream of values. Iterate over it; leaving `async with`, `aclose` and losing the last reference end it."""

    def __init__(self, values: AsyncGenerator[T, None]) -> None:
        self._values = values

    def __aiter__(self) -> AsyncIterator[T]:
        return self._values

    async def __anext__(self) -> T:
        return await self._values.__anext__()

    async def __aenter__(self) -> Stream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the stream."""
        await self._values.aclose()


class Cursor:
    """Reads frames of one session over one stream after another, without duplicates."""

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        progress: Progress,
        *,
        after: Position | None,
        tail: bool,
        filter: bridge.EventFilter | None,
        options: bridge.StreamOptions | None,
        callbacks: bool = False,
    ) -> None:
        self._connection, self._session_id, self._progress = connection, session_id, progress
        self._after, self._tail = after, tail
        self._filter, self._options, self._callbacks = filter, options, callbacks

    async def frames(self, closed: asyncio.Future[Any] | None) -> AsyncGenerator[bridge.SubscribeResponse, None]:
        """The frames, until the session is over. `closed` ends them early."""
        backoff = Backoff(self._connection.reconnect)
        while True:
            call = self._connection.events.Subscribe(self._request())
            reader = Reader(call, silence_of(self._options), closed)
            cause: CopilotError = ConnectionLost("the server ended the event stream")
            try:
                while (frame := await reader.read()) is not None:
                    backoff.reset()
                    kind = frame.WhichOneof("frame")
                    draining = kind == "closed" and frame.closed.reason == bridge.CloseReason.CLOSE_REASON_DRAINING
                    if kind == "go_away" or draining:
                        break
                    if self.note(frame) or kind == "closed":
                        yield frame
                    if kind == "closed":
                        return
            except CopilotError as error:
                cause = error
            finally:
                reader.close()
            if closed is not None and closed.done():
                return
            if not cause.is_broken or not await backoff.wait(cause):
                raise cause

    def note(self, frame: bridge.SubscribeResponse) -> bool:
        """Moves the cursor. Returns False for a frame whose events have all been read before."""
        kind = frame.WhichOneof("frame")
        after = self._after
        if kind == "events":
            events = frame.events.events
            while events and after is not None and Position.of(events[0].position) <= after:
                del events[0]
            if not events:
                return False
            self._after = after = Position.of(events[-1].position)
        if frame.HasField("resume_after"):
            seen = Position.of(frame.resume_after)
            if after is None or seen > after:
                self._after = seen
        if self._after is not None and self._after > (self._progress.last or (0, 0)):
            self._progress.last = self._after
        return kind is not None

    def _request(self) -> bridge.SubscribeRequest:
        cursor = bridge.SessionCursor(session_id=self._session_id)
        if self._after is not None:
            cursor.after.CopyFrom(self._after.message())
        elif self._tail:
            cursor.start = bridge.StreamStart.STREAM_START_END
        if self._filter is not None:
            cursor.filter.CopyFrom(self._filter)
        request = bridge.SubscribeRequest(sessions=[cursor], callbacks=self._callbacks)
        if self._options is not None:
            request.options.CopyFrom(self._options)
        return request


def is_told(gap: bridge.Gap, ephemeral_gaps: bool) -> bool:
    """Whether a gap appears among the events."""
    return ephemeral_gaps or gap.reason != bridge.GapReason.GAP_REASON_EPHEMERAL_LOST


async def events_of(
    frames: AsyncGenerator[bridge.SubscribeResponse, None], ephemeral_gaps: bool
) -> AsyncGenerator[Event, None]:
    """The events and gaps in frames."""
    try:
        async for frame in frames:
            for event in map(Event, frame.events.events):
                yield event
            if frame.HasField("gap") and is_told(frame.gap, ephemeral_gaps):
                yield Gap(frame.gap)
    finally:
        await frames.aclose()


class Reader:
    """Reads the responses of a call. A call without one for `silence` seconds fails as broken.

    The time in which nothing asks for the next response does not count.
    """

    def __init__(self, call: Any, silence: float, closed: asyncio.Future[Any] | None = None) -> None:
        self._call, self._silence, self._closed = call, silence, closed
        self._loop = asyncio.get_running_loop()
        self._reading_since: float | None = None
        self._cause: CopilotError | None = None
        self._timer = self._loop.call_later(silence / 4, self._watch)
        if closed is not None:
            closed.add_done_callback(self._end)

    async def read(self) -> Any:
        """The next response; None at the end. Raises CopilotError."""
        self._reading_since = self._loop.time()
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise await failure_of(self._call, error) from None
        except asyncio.CancelledError:
            if self._cause is not None:
                raise self._cause from None
            raise
        self._reading_since = None
        return None if response is grpc.aio.EOF else response

    def close(self) -> None:
        """Ends the call."""
        self._timer.cancel()
        if self._closed is not None:
            self._closed.remove_done_callback(self._end)
        self._call.cancel()

    def _watch(self) -> None:
        if self._reading_since is not None and self._loop.time() - self._reading_since >= self._silence:
            self._fail(ConnectionLost("the server is silent"))
        else:
            self._timer = self._loop.call_later(self._silence / 4, self._watch)

    def _end(self, _: object) -> None:
        self._fail(ConnectionLost("the session is closed"))

    def _fail(self, cause: CopilotError) -> None:
        self._cause = cause
        self._call.cancel()


def silence_of(options: bridge.StreamOptions | None) -> float:
    """The time without a frame after which a stream is broken: three times the heartbeat's interval."""
    asked = options.heartbeat_interval.ToTimedelta().total_seconds() if options is not None else 0.0
    return max(SILENCE, 3 * asked) if asked else max(SILENCE, 90.0)


def filter_of(
    types: Sequence[str] | None, exclude: Sequence[str] | None, filter: bridge.EventFilter | None
) -> bridge.EventFilter | None:
    """The filter that short forms stand for."""
    if types is None and exclude is None:
        return filter
    if filter is not None:
        raise ValueError("give either a filter, or types and exclude")
    return bridge.EventFilter(types=types or (), exclude_types=exclude or ())
