"""The callbacks that wait in all sessions."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Union

from ._client import Connection
from ._events import Reader, silence_of
from ._info import word_of
from ._position import Progress
from ._retry import Backoff, repeat
from .bridge import v1 as bridge
from .errors import ConnectionLost, CopilotError


@dataclass(frozen=True)
class _OfCallback:
    proto: bridge.Callback

    @property
    def id(self) -> str:
        """The callback's id, as in `Session.resolve`."""
        return self.proto.callback_id

    @property
    def session_id(self) -> str:
        """The session."""
        return self.proto.session_id

    @property
    def kind(self) -> str:
        """The kind, such as "permission" or "tool_call"."""
        return word_of(bridge.CallbackKind, "CALLBACK_KIND_", self.proto.kind)


@dataclass(frozen=True)
class PendingCallback(_OfCallback):
    """A callback that waits for an answer.

    Attributes:
        proto: The callback as a message, with its request. The request of a very large one is left out: see
            `Callback.total_bytes` of the API.
    """

    _connection: Connection = field(repr=False, compare=False)

    async def answer(self, answer: bridge.Answer) -> None:
        """Answers the callback. `copilot_grpc.answers` makes answers.

        Raises:
            CallbackResolved: It has been answered, or it ended in another way.
        """
        request = bridge.ResolveRequest(
            session_id=self.session_id, callback_id=self.id, answer=answer, request_id=uuid.uuid4().hex
        )
        connection = self._connection
        await repeat(connection.call_policy, lambda: connection.unary(connection.callbacks.Resolve, request))


@dataclass(frozen=True)
class PendingEnd(_OfCallback):
    """A callback no longer waits, or this program may no longer see it.

    Attributes:
        proto: The callback as a message.
        resolved: How it ended, and who answered it; None if the server did not say.
    """

    resolved: bridge.CallbackResolved | None = None


async def pending(
    connection: Connection, session_id: str = "", progress: Progress | None = None
) -> list[PendingCallback]:
    """The callbacks that wait in a session, or in all of them, oldest first."""
    request, found = bridge.ListPendingRequest(session_id=session_id), list[PendingCallback]()
    while True:
        page = await connection.unary(connection.callbacks.ListPending, request, progress=progress)
        found += [PendingCallback(callback, connection) for callback in page.callbacks]
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


PendingChange = Union[PendingCallback, PendingEnd]


class Inbox:
    """The callbacks that wait. Turns the server's changes into changes of the list, also over several streams."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[tuple[str, str], bridge.Callback] = {}
        # Those that a new stream, or one after a reset, has not confirmed yet.
        self._unconfirmed: set[tuple[str, str]] = set()

    def restart(self) -> None:
        """Notes that the server lists all callbacks again."""
        self._unconfirmed = set(self._waiting)

    def take(self, change: bridge.WatchPendingResponse) -> Iterator[PendingChange]:
        """The changes of the list."""
        match change.WhichOneof("change"):
            case "requested":
                key = (change.requested.session_id, change.requested.callback_id)
                self._unconfirmed.discard(key)
                if key not in self._waiting:
                    self._waiting[key] = change.requested
                    yield PendingCallback(change.requested, self._connection)
            case "resolved":
                key = (change.resolved.session_id, change.resolved.resolved.callback_id)
                yield from self._end(key, change.resolved.resolved)
            case "unmatched":
                for key in [key for key in self._waiting if key[0] == change.unmatched.session_id]:
                    yield from self._end(key, None)
            case "reset":
                self.restart()
            case "caught_up":
                for key in [key for key in self._waiting if key in self._unconfirmed]:
                    yield from self._end(key, None)

    def _end(self, key: tuple[str, str], resolved: bridge.CallbackResolved | None) -> Iterator[PendingChange]:
        self._unconfirmed.discard(key)
        callback = self._waiting.pop(key, None)
        if callback is not None:
            yield PendingEnd(callback, resolved)


async def watch_pending(
    connection: Connection, request: bridge.WatchPendingRequest
) -> AsyncGenerator[PendingChange, None]:
    """Changes, over one stream after another."""
    backoff, inbox = Backoff(connection.reconnect), Inbox(connection)
    while True:
        inbox.restart()
        reader = Reader(connection.callbacks.WatchPending(request), silence_of(None))
        cause: CopilotError = ConnectionLost("the server ended the stream")
        try:
            while (frame := await reader.read()) is not None:
                backoff.reset()
                for change in inbox.take(frame):
                    yield change
        except CopilotError as error:
            cause = error
        finally:
            reader.close()
        if not cause.is_broken or not await backoff.wait(cause):
            raise cause
