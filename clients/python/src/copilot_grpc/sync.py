"""The library without asyncio.

The names and arguments are those of `copilot_grpc`. One background thread runs the event loop of all clients. Calls may
come from any thread and block only that thread. `KeyboardInterrupt` and other exceptions in a waiting thread cancel the
call. Plain handlers run in other threads, so that they may call the client; coroutine handlers run on the background
loop and must not. The thread is a daemon: a program may end without closing its clients.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, TypeVar, Union

from typing_extensions import Unpack

from . import client as _client
from ._loop import BackgroundLoop
from .options import ParticipantOptions, SessionOptions

if TYPE_CHECKING:
    from datetime import datetime

    from . import _events, _inbox, _session
    from ._inbox import PendingEnd
    from ._info import SessionChange, SessionInfo
    from ._position import Position
    from ._prompts import AnyAttachment, Prompt
    from ._session import Receipt
    from ._turn import Outcome
    from ._turn import Turn as AsyncTurn
    from .bridge import v1 as bridge
    from .cli import v1 as cli
    from .errors import CopilotError
    from .tools import Tool

T = TypeVar("T")


_loop = BackgroundLoop()


class Stream(Generic[T], Iterator[T]):
    """A stream of values. Leaving `with` or calling `close` ends it."""

    def __init__(self, values: _events.Stream[T]) -> None:
        self._values = values

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        found = _loop.call(_next(self._values))
        if not found:
            raise StopIteration
        return found[0]

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream."""
        _loop.call(self._values.aclose())


async def _next(values: _events.Stream[T]) -> list[T]:
    """The next value, if there is one. A future cannot hold StopIteration."""
    try:
        return [await values.__anext__()]
    except StopAsyncIteration:
        return []


async def _started(make: Callable[[], T]) -> T:
    """Makes something on the loop that needs it."""
    return make()


class Turn:
    """A turn that is read while it happens: `for event in turn`, `turn.deltas()`, `turn.outcome()`."""

    def __init__(self, turn: AsyncTurn) -> None:
        self._turn = turn

    def __iter__(self) -> Iterator[_events.Event]:
        from ._events import Stream as AsyncStream

        return Stream(AsyncStream(self._turn.__aiter__()))  # type: ignore[arg-type]

    def deltas(self) -> Stream[str]:
        """The agent's text as it arrives."""
        return Stream(self._turn.deltas())

    def outcome(self) -> Outcome:
        """The end of the turn. Reads the rest of the turn."""
        return _loop.call(self._turn.outcome())


class Session:
    """See `copilot_grpc.Session`."""

    def __init__(self, session: _session.Session) -> None:
        self._session = session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def info(self) -> SessionInfo:
        """The session when it was opened."""
        return self._session.info

    @property
    def participant_id(self) -> str:
        """Id of this participant; empty for a handle."""
        return self._session.participant_id

    @property
    def position(self) -> Position | None:
        """The latest position that this program has seen."""
        return self._session.position

    @property
    def ended(self) -> CopilotError | None:
        """The reason why the participation is over; None while it continues."""
        return self._session.ended

    def send(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        request_id: str | None = None, timeout: float | None = None,
    ) -> Receipt:  # fmt: skip
        """See `copilot_grpc.Session.send`."""
        return _loop.call(self._session.send(
            prompt, attachments=attachments, immediate=immediate, request_id=request_id, timeout=timeout
        ))  # fmt: skip

    def send_and_wait(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        idle_timeout: float | None = None, timeout: float | None = None, request_id: str | None = None,
        abort_on_cancel: bool = False,
    ) -> Outcome:  # fmt: skip
        """See `copilot_grpc.Session.send_and_wait`."""
        return _loop.call(self._session.send_and_wait(
            prompt, attachments=attachments, immediate=immediate, idle_timeout=idle_timeout, timeout=timeout,
            request_id=request_id, abort_on_cancel=abort_on_cancel,
        ))  # fmt: skip

    def run(
        self, prompt: Prompt, *, attachments: Sequence[AnyAttachment] = (), immediate: bool = False,
        filter: bridge.EventFilter | None = None, options: bridge.StreamOptions | None = None,
        request_id: str | None = None, abort_on_cancel: bool = False,
    ) -> Turn:  # fmt: skip
        """See `copilot_grpc.Session.run`."""
        return Turn(self._session.run(
            prompt, attachments=attachments, immediate=immediate, filter=filter, options=options,
            request_id=request_id, abort_on_cancel=abort_on_cancel,
        ))  # fmt: skip

    def abort(self) -> bool:
        """See `copilot_grpc.Session.abort`."""
        return _loop.call(self._session.abort())

    def events(
        self, *, after: Position | None = None, start: Literal["opened", "beginning", "now"] = "opened",
        types: Sequence[str] | None = None, exclude: Sequence[str] | None = None,
        filter: bridge.EventFilter | None = None, options: bridge.StreamOptions | None = None,
        ephemeral_gaps: bool = False,
    ) -> Stream[_events.Event]:  # fmt: skip
        """See `copilot_grpc.Session.events`."""
        return Stream(self._session.events(
            after=after, start=start, types=types, exclude=exclude, filter=filter, options=options,
            ephemeral_gaps=ephemeral_gaps,
        ))  # fmt: skip

    def history(
        self, *, after: Position | None = None, types: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None, filter: bridge.EventFilter | None = None,
    ) -> Stream[_events.Event]:  # fmt: skip
        """See `copilot_grpc.Session.history`."""
        return Stream(self._session.history(after=after, types=types, exclude=exclude, filter=filter))

    def read_event(self, position: Position) -> bytes:
        """See `copilot_grpc.Session.read_event`."""
        return _loop.call(self._session.read_event(position))

    def get(self) -> SessionInfo:
        """See `copilot_grpc.Session.get`."""
        return _loop.call(self._session.get())

    def set_model(self, model_id: str, *, reasoning_effort: str = "") -> str:
        """See `copilot_grpc.Session.set_model`."""
        return _loop.call(self._session.set_model(model_id, reasoning_effort=reasoning_effort))

    def log(
        self, message: str, *, level: cli.SessionLogLevel.ValueType | None = None, ephemeral: bool = False,
        url: str = "",
    ) -> str:  # fmt: skip
        """See `copilot_grpc.Session.log`."""
        return _loop.call(self._session.log(message, level=level, ephemeral=ephemeral, url=url))

    def update_provider(self, provider: cli.ProviderConfig, *, fields: Sequence[str] = ()) -> None:
        """See `copilot_grpc.Session.update_provider`."""
        _loop.call(self._session.update_provider(provider, fields=fields))

    def provide_credentials(self, *, provider: cli.ProviderConfig | None = None, github_token: str = "") -> None:
        """See `copilot_grpc.Session.provide_credentials`."""
        _loop.call(self._session.provide_credentials(provider=provider, github_token=github_token))

    def update_labels(self, set: Mapping[str, str] | None = None, *, remove: Sequence[str] = ()) -> dict[str, str]:
        """See `copilot_grpc.Session.update_labels`."""
        return _loop.call(self._session.update_labels(set, remove=remove))

    def pending(self) -> list[PendingCallback]:
        """See `copilot_grpc.Session.pending`."""
        return list(map(PendingCallback, _loop.call(self._session.pending())))

    def resolve(self, callback_id: str, answer: bridge.Answer) -> None:
        """See `copilot_grpc.Session.resolve`."""
        _loop.call(self._session.resolve(callback_id, answer))

    def set_tools(self, tools: Sequence[Tool[..., Any]]) -> None:
        """See `copilot_grpc.Session.set_tools`."""
        _loop.call(self._session.set_tools(tools))

    def close(self) -> None:
        """See `copilot_grpc.Session.close`."""
        _loop.call(self._session.close())

    def disconnect(self) -> None:
        """See `copilot_grpc.Session.disconnect`."""
        _loop.call(self._session.disconnect())

    def delete(self) -> None:
        """See `copilot_grpc.Session.delete`."""
        _loop.call(self._session.delete())


class PendingCallback:
    """See `copilot_grpc.PendingCallback`."""

    def __init__(self, waiting: _inbox.PendingCallback) -> None:
        self._waiting, self.proto = waiting, waiting.proto
        self.id, self.session_id, self.kind = waiting.id, waiting.session_id, waiting.kind

    def answer(self, answer: bridge.Answer) -> None:
        """See `copilot_grpc.PendingCallback.answer`."""
        _loop.call(self._waiting.answer(answer))


async def _blocking(
    changes: _events.Stream[Union[_inbox.PendingCallback, PendingEnd]],
) -> AsyncGenerator[Union[PendingCallback, PendingEnd], None]:
    """The changes, with callbacks whose answers block."""
    from ._inbox import PendingCallback as AsyncPendingCallback

    async with changes:
        async for change in changes:
            yield PendingCallback(change) if isinstance(change, AsyncPendingCallback) else change


class Client:
    """See `copilot_grpc.Client`. Its methods may be called by several threads."""

    def __init__(self, client: _client.Client) -> None:
        self._client = client

    @classmethod
    def connect(cls, target: str | None = None, **options: Any) -> Client:
        """See `copilot_grpc.Client.connect`, which has the options."""
        return cls(_loop.call(_awaited(_client.Client.connect(target, **options))))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `copilot_grpc.Client.close`."""
        _loop.call(self._client.close())

    def create_session(self, *, session_id: str = "", **options: Unpack[SessionOptions]) -> Session:
        """See `copilot_grpc.Client.create_session`."""
        return Session(_loop.call(_awaited(self._client.create_session(session_id=session_id, **options))))

    def resume_session(self, session_id: str, **options: Unpack[SessionOptions]) -> Session:
        """See `copilot_grpc.Client.resume_session`."""
        return Session(_loop.call(_awaited(self._client.resume_session(session_id, **options))))

    def open_session(self, session_id: str, **options: Unpack[SessionOptions]) -> Session:
        """See `copilot_grpc.Client.open_session`."""
        return Session(_loop.call(_awaited(self._client.open_session(session_id, **options))))

    def join_session(self, session_id: str, **options: Unpack[ParticipantOptions]) -> Session:
        """See `copilot_grpc.Client.join_session`."""
        return Session(_loop.call(_awaited(self._client.join_session(session_id, **options))))

    def session(self, session_id: str) -> Session:
        """See `copilot_grpc.Client.session`."""
        return Session(_loop.call(_started(lambda: self._client.session(session_id))))

    def run(self, prompt: str, **options: Unpack[SessionOptions]) -> Outcome:
        """See `copilot_grpc.Client.run`."""
        return _loop.call(self._client.run(prompt, **options))

    def get_session(self, session_id: str) -> SessionInfo:
        """See `copilot_grpc.Client.get_session`."""
        return _loop.call(self._client.get_session(session_id))

    def list_sessions(
        self, *, labels: Mapping[str, str] | None = None, filter: bridge.SessionFilter | None = None,
        include_history: bool = False,
    ) -> Stream[SessionInfo]:  # fmt: skip
        """See `copilot_grpc.Client.list_sessions`."""
        return Stream(self._client.list_sessions(labels=labels, filter=filter, include_history=include_history))

    def last_session_id(self) -> str:
        """See `copilot_grpc.Client.last_session_id`."""
        return _loop.call(self._client.last_session_id())

    def delete_session(self, session_id: str) -> None:
        """See `copilot_grpc.Client.delete_session`."""
        _loop.call(self._client.delete_session(session_id))

    def export_session(self, session_id: str, to: BinaryIO) -> bridge.ExportSessionHeader:
        """See `copilot_grpc.Client.export_session`."""
        return _loop.call(self._client.export_session(session_id, to))

    def import_session(
        self, archive: BinaryIO, *, session_id: str = "", config: cli.SessionConfig | None = None,
        provider_ref: str = "",
    ) -> bridge.ImportSessionResponse:  # fmt: skip
        """See `copilot_grpc.Client.import_session`."""
        return _loop.call(
            self._client.import_session(archive, session_id=session_id, config=config, provider_ref=provider_ref)
        )

    def watch_sessions(
        self, *, labels: Mapping[str, str] | None = None, filter: bridge.SessionFilter | None = None
    ) -> Stream[SessionChange]:
        """See `copilot_grpc.Client.watch_sessions`."""
        return Stream(self._client.watch_sessions(labels=labels, filter=filter))

    def watch_pending(
        self, *, handle: bool = False, kinds: Sequence[bridge.CallbackKind.ValueType] = (),
        labels: Mapping[str, str] | None = None, owner: str = "", name: str = "", grace: float | None = None,
    ) -> Stream[Union[PendingCallback, PendingEnd]]:  # fmt: skip
        """See `copilot_grpc.Client.watch_pending`. `PendingCallback.answer` blocks here."""
        from ._events import Stream as AsyncStream

        return Stream(AsyncStream(_blocking(self._client.watch_pending(
            handle=handle, kinds=kinds, labels=labels, owner=owner, name=name, grace=grace,
        ))))  # fmt: skip

    def usage(
        self, *, by: Sequence[_client.UsageGroup] = (), session_id: str = "", labels: Mapping[str, str] | None = None,
        filter: bridge.SessionFilter | None = None, start: datetime | None = None, end: datetime | None = None,
    ) -> list[bridge.UsageRow]:  # fmt: skip
        """See `copilot_grpc.Client.usage`."""
        return _loop.call(self._client.usage(
            by=by, session_id=session_id, labels=labels, filter=filter, start=start, end=end
        ))  # fmt: skip

    def server_info(self) -> bridge.GetServerInfoResponse:
        """See `copilot_grpc.Client.server_info`."""
        return _loop.call(self._client.server_info())

    def ping(self) -> bridge.PingResponse:
        """See `copilot_grpc.Client.ping`."""
        return _loop.call(self._client.ping())

    def auth_status(self) -> bridge.GetAuthStatusResponse:
        """See `copilot_grpc.Client.auth_status`."""
        return _loop.call(self._client.auth_status())

    def list_models(self, *, github_token: str = "") -> list[cli.Model]:
        """See `copilot_grpc.Client.list_models`."""
        return _loop.call(self._client.list_models(github_token=github_token))

    def pending(self) -> list[PendingCallback]:
        """See `copilot_grpc.Client.pending`."""
        return list(map(PendingCallback, _loop.call(self._client.pending())))


async def _awaited(opening: Any) -> Any:
    return await opening


__all__ = ["Client", "PendingCallback", "Session", "Stream", "Turn"]
