"""A connection to a server: the channel, its stubs and its policies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.message import Message

from ._authorized import failure_of
from ._position import Progress
from ._retry import Reconnect, repeat
from .bridge import v1 as bridge
from .bridge.v1.callback_service_pb2_grpc import CallbackServiceStub
from .bridge.v1.event_service_pb2_grpc import EventServiceStub
from .bridge.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from .bridge.v1.session_service_pb2_grpc import SessionServiceStub
from .errors import CopilotError, ServerIncompatible

if TYPE_CHECKING:
    from .bridge.v1.callback_service_pb2_grpc import CallbackServiceAsyncStub
    from .bridge.v1.event_service_pb2_grpc import EventServiceAsyncStub
    from .bridge.v1.runtime_service_pb2_grpc import RuntimeServiceAsyncStub
    from .bridge.v1.session_service_pb2_grpc import SessionServiceAsyncStub

# The versions of servers that this library works with: from the first, before the second.
SERVER_VERSIONS = ((0, 1), (1, 0))
# Calls with a request id are repeated for this time: long enough for a server or a CLI process that is being replaced.
CALL_POLICY = Reconnect(first=0.1, longest=1.0, give_up_after=3.0)


class Connection:
    """The channel to a server with its stubs. Not part of the public interface."""

    def __init__(self, channel: grpc.aio.Channel, *, name: str, reconnect: Reconnect, timeout: float | None) -> None:
        self.channel, self.name, self.reconnect, self.timeout = channel, name, reconnect, timeout
        self.sessions: SessionServiceAsyncStub = SessionServiceStub(channel)
        self.events: EventServiceAsyncStub = EventServiceStub(channel)
        self.callbacks: CallbackServiceAsyncStub = CallbackServiceStub(channel)
        self.runtimes: RuntimeServiceAsyncStub = RuntimeServiceStub(channel)

    @property
    def call_policy(self) -> Reconnect:
        """How calls with a request id are repeated; not at all if streams are not."""
        return CALL_POLICY if self.reconnect.give_up_after else self.reconnect

    async def unary(
        self, method: Any, request: Any, *, progress: Progress | None = None, timeout: float | None = None,
        wait: bool = False,
    ) -> Any:  # fmt: skip
        """Makes a unary call and notes the position in its trailers. `wait`: the call has no default time limit.

        A call whose token has been replaced is repeated once, unless its requests are a stream.
        """
        limit = timeout or (None if wait else self.timeout)
        try:
            return await self._unary(method, request, progress, limit)
        except CopilotError as error:
            if not error.token_replaced or not isinstance(request, Message):
                raise
        try:
            return await self._unary(method, request, progress, limit)
        except CopilotError as error:
            error.token_replaced = False  # final
            raise

    async def _unary(self, method: Any, request: Any, progress: Progress | None, timeout: float | None) -> Any:
        call = method(request, timeout=timeout)
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            raise await failure_of(call, error) from None
        if progress is not None:
            progress.note_trailers(await call.trailing_metadata())
        return response

    async def stream(self, call: Any) -> AsyncIterator[Any]:
        """Reads a stream of responses to its end."""
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise await failure_of(call, error) from None
        finally:
            call.cancel()

    async def read_callback(self, session_id: str, callback_id: str) -> bridge.Callback:
        """Reads a callback with its request, in pieces."""
        request = bridge.ReadCallbackRequest(session_id=session_id, callback_id=callback_id)

        async def read() -> bytes:
            return b"".join([piece.chunk async for piece in self.stream(self.callbacks.ReadCallback(request))])

        return bridge.Callback.FromString(await repeat(self.call_policy, read))

    async def check(self, target: str, timeout: float) -> None:
        """Checks that the server answers, accepts the caller, and works with this library."""
        try:
            info = await self.unary(self.runtimes.GetServerInfo, bridge.GetServerInfoRequest(), timeout=timeout)
        except Exception as error:
            if getattr(error, "code", "") == "UNIMPLEMENTED":
                raise ServerIncompatible(f"the server at {target} is no copilot-grpc: {error}") from None
            raise
        check_version(info.version, target)


def check_version(version: str, target: str) -> None:
    """Raises ServerIncompatible if a version is outside the window. Builds of developers have no such version."""
    numbers = version.removeprefix("v").partition("-")[0].split(".")
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers[:2]):
        return
    first, before = SERVER_VERSIONS
    if not first <= (int(numbers[0]), int(numbers[1])) < before:
        window = f"{first[0]}.{first[1]} up to, but not including, {before[0]}.{before[1]}"
        raise ServerIncompatible(f"the server at {target} has version {version}; this library works with {window}")
