"""One Attach stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from ._authorized import failure_of
from ._slots import Slots
from .bridge import v1 as bridge
from .errors import ConnectionLost, CopilotError

if TYPE_CHECKING:
    from .bridge.v1.callback_service_pb2_grpc import CallbackServiceAsyncStub

# Interval of signs of life in both directions: below the idle timeout of the usual proxies.
HEARTBEAT = 20.0
# A stream without any frame for this time is broken.
SILENCE = 3 * HEARTBEAT


def _at_once(value: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        value.send(None)
    except StopIteration as result:
        return result.value
    raise RuntimeError("the coroutine waits")


class Link:
    """An Attach stream. One task reads it; any task may send.

    Cancelling a task in grpc's `write` cancels the whole stream, so that `send` lets a task of the link write.
    """

    def __init__(self, stub: CallbackServiceAsyncStub, *, heartbeat: float, silence: float) -> None:
        self._call: Any = stub.Attach()
        self._clock = asyncio.get_running_loop().time
        self._heard_at = self._clock()
        self._lost: CopilotError | None = None
        self._status: grpc.aio.AioRpcError | None = None
        self._call.add_done_callback(self._note_status)
        self._out: asyncio.Queue[tuple[bridge.AttachRequest, asyncio.Future[None]]] = asyncio.Queue()
        self._writing = Slots(1)
        self._waiting: set[asyncio.Future[None]] = set()
        self._tasks = [
            asyncio.create_task(self._write(), name="copilot-grpc attach writer"),
            asyncio.create_task(self._beat(heartbeat, silence), name="copilot-grpc attach heartbeat"),
        ]
        self.is_down = False

    async def send(self, frame: bridge.AttachRequest) -> None:
        """Sends a frame and returns when gRPC has taken it, or the stream is down. Reading reports failures."""
        if self.is_down:
            return
        taken = asyncio.get_running_loop().create_future()
        self._waiting.add(taken)
        self._out.put_nowait((frame, taken))
        try:
            await taken
        finally:
            self._waiting.discard(taken)

    async def send_now(self, frame: bridge.AttachRequest) -> None:
        """Like `send`, without the detour, for tasks that are only cancelled together with the link."""
        if self.is_down:
            return
        if not self._writing.take_now():
            await self._writing.take()
        try:
            await self._call.write(frame)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self.down()  # `read` raises the cause
        finally:
            self._writing.release()

    async def read(self) -> bridge.AttachResponse:
        """Returns the next frame. Raises CopilotError when the stream has ended, for whatever reason."""
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            error = self._status or error
            raise await failure_of(self._call, error) from None
        except asyncio.CancelledError:
            if self._lost is not None:
                raise self._lost from None
            raise
        if frame is grpc.aio.EOF:
            raise ConnectionLost("the server ended the attach stream")
        self._heard_at = self._clock()
        assert isinstance(frame, bridge.AttachResponse)
        return frame

    def _note_status(self, call: Any) -> None:
        """Keeps the server's status. If a write fails after it came, gRPC replaces it by INTERNAL without details."""
        if self._status is None:
            code, details, initial, trailing = (
                _at_once(get()) for get in (call.code, call.details, call.initial_metadata, call.trailing_metadata)
            )
            self._status = grpc.aio.AioRpcError(code, initial, trailing, details)

    def down(self) -> None:
        """Notes that nothing more is read. Senders return."""
        self.is_down = True
        for taken in self._waiting:
            if not taken.done():
                taken.set_result(None)

    async def close(self) -> None:
        """Drops the stream, and waits for the link's tasks."""
        self.down()
        self._call.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            frame, taken = await self._out.get()
            await self.send_now(frame)
            if not taken.done():
                taken.set_result(None)

    async def _beat(self, heartbeat: float, silence: float) -> None:
        frame = bridge.AttachRequest(heartbeat=bridge.AttachHeartbeat())
        while not self.is_down:
            await asyncio.sleep(heartbeat)
            if self._clock() - self._heard_at > silence:
                self._lost = ConnectionLost("the server is silent")
                self._call.cancel()
                return
            if self._out.empty():
                self._out.put_nowait((frame, asyncio.get_running_loop().create_future()))
