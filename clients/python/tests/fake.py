"""A server whose streams the test plays, over a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from copilot_grpc import Client, Reconnect
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.bridge.v1.callback_service_pb2_grpc import add_CallbackServiceServicer_to_server
from copilot_grpc.bridge.v1.event_service_pb2_grpc import add_EventServiceServicer_to_server
from copilot_grpc.bridge.v1.runtime_service_pb2_grpc import add_RuntimeServiceServicer_to_server
from copilot_grpc.bridge.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server

T = TypeVar("T")
# Bounds every wait of a test. It is far more than anything takes.
PATIENCE = 120.0
QUICKLY = Reconnect(first=0.001, longest=0.005, give_up_after=PATIENCE)


async def soon(awaitable: Awaitable[T]) -> T:
    """Waits for the other side."""
    return await asyncio.wait_for(awaitable, PATIENCE)


def position(epoch: int, seq: int) -> bridge.Position:
    return bridge.Position(epoch=epoch, seq=seq)


class ServerStream(Generic[T]):
    """A stream of responses in the hands of the test."""

    def __init__(self, request: T, context: Any) -> None:
        self.request, self._context = request, context
        self._ended: asyncio.Future[tuple[grpc.StatusCode, str] | None] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            await self._context.write(frame)

    def end(self, code: grpc.StatusCode | None = None, text: str = "cut") -> None:
        """Ends the stream: with OK, or like a broken connection with a code without a reason."""
        self._ended.set_result((code, text) if code else None)

    async def serve(self) -> None:
        try:
            status = await self._ended
        except asyncio.CancelledError:
            self.gone.set()
            raise
        if status is not None:
            await self._context.abort(*status)


class Attached(ServerStream[bridge.AttachStart]):
    """An Attach stream."""

    def __init__(self, request: bridge.AttachStart, context: Any) -> None:
        super().__init__(request, context)
        self.received: asyncio.Queue[bridge.AttachRequest | None] = asyncio.Queue()

    async def start(self, *pending: bridge.Callback, participant_id: str = "p1") -> None:
        session = bridge.Session(session_id="s1", position=position(1, 3))
        started = bridge.AttachStarted(participant_id=participant_id, participant_token="secret", session=session)
        await self.send(bridge.AttachResponse(started=started))
        await self.tell(
            started=bridge.SubscriptionStarted(position=position(1, 3), session=session, pending_callbacks=pending)
        )

    async def tell(self, **frame: Any) -> None:
        """Sends a frame about the session."""
        await self.send(bridge.AttachResponse(stream=bridge.SubscribeResponse(session_id="s1", **frame)))

    async def ask(self, callback: bridge.Callback, offered: bool = True) -> None:
        await self.tell(callback_requested=bridge.CallbackRequested(callback=callback, offered=offered))

    async def next(self) -> bridge.AttachRequest:
        """The next frame of the client."""
        frame = await soon(self.received.get())
        assert frame is not None, "the client has half-closed the stream"
        return frame

    async def answer(self) -> bridge.CallbackAnswer:
        frame = await self.next()
        assert frame.HasField("answer"), frame
        return frame.answer

    async def done(self, callback_id: str) -> None:
        await self.send(bridge.AttachResponse(done=bridge.AttachDone(callback_id=callback_id, position=position(1, 9))))

    async def failed(self, callback_id: str, code: grpc.StatusCode, reason: int, text: str) -> None:
        failure = bridge.Failure(code=code.value[0], reason=reason, message=text)  # type: ignore[arg-type]
        await self.send(bridge.AttachResponse(failed=bridge.AttachFailed(callback_id=callback_id, failure=failure)))

    async def goodbye(self) -> bridge.AttachLeave:
        """Lets the participant leave."""
        frame = await self.next()
        assert frame.HasField("leave"), frame
        await self.tell(closed=bridge.SubscriptionClosed(reason=bridge.CloseReason.CLOSE_REASON_LEFT))
        self.end()
        return frame.leave


class Fake:
    """The server. Unary calls are functions in `unary`, by method; others fail with UNIMPLEMENTED."""

    def __init__(self) -> None:
        # The messages that an export answers with, and those that an import has received.
        self.exports: list[bridge.ExportSessionResponse] = []
        self.imports: list[bridge.ImportSessionRequest] = []
        # Streams that a test plays in another way, by method.
        self.streams: dict[str, Callable[[Any, Any], Awaitable[None]]] = {}
        self.attaches: asyncio.Queue[Attached] = asyncio.Queue()
        self.subscriptions: asyncio.Queue[ServerStream[bridge.SubscribeRequest]] = asyncio.Queue()
        self.runs: asyncio.Queue[ServerStream[bridge.RunRequest]] = asyncio.Queue()
        self.unary: dict[str, Callable[[Any, Any], Any]] = {
            "GetServerInfo": lambda request, context: bridge.GetServerInfoResponse(version="0.1.0")
        }

    async def attached(self, *pending: bridge.Callback, participant_id: str = "p1") -> Attached:
        """The next Attach stream, started."""
        stream = await soon(self.attaches.get())
        await stream.start(*pending, participant_id=participant_id)
        return stream

    def __getattr__(self, name: str) -> Any:
        """The unary calls, for the generated registration."""

        async def call(request: Any, context: Any) -> Any:
            function = self.unary.get(name)
            if function is None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, name)
            assert function is not None
            answer = function(request, context)
            return await answer if asyncio.iscoroutine(answer) else answer

        if name.startswith("_"):
            raise AttributeError(name)
        return call

    async def Attach(self, requests: AsyncIterator[bridge.AttachRequest], context: Any) -> None:
        if function := self.streams.get("Attach"):
            await function(requests, context)
            return
        first = await anext(requests)
        stream = Attached(first.start, context)

        async def receive() -> None:
            async for request in requests:
                stream.received.put_nowait(request)
            stream.received.put_nowait(None)

        receiving = asyncio.create_task(receive())
        self.attaches.put_nowait(stream)
        try:
            await stream.serve()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def Subscribe(self, request: bridge.SubscribeRequest, context: Any) -> None:
        if function := self.streams.get("Subscribe"):
            await function(request, context)
            return
        stream = ServerStream(request, context)
        self.subscriptions.put_nowait(stream)
        await stream.serve()

    async def ReadCallback(self, request: bridge.ReadCallbackRequest, context: Any) -> None:
        await self.streams["ReadCallback"](request, context)

    async def WatchPending(self, request: bridge.WatchPendingRequest, context: Any) -> None:
        await self.streams["WatchPending"](request, context)

    async def WatchSessions(self, request: bridge.WatchSessionsRequest, context: Any) -> None:
        await self.streams["WatchSessions"](request, context)

    async def ReadEvent(self, request: bridge.ReadEventRequest, context: Any) -> None:
        await self.streams["ReadEvent"](request, context)

    async def ExportSession(self, request: bridge.ExportSessionRequest, context: Any) -> AsyncIterator[Any]:
        for message in self.exports:
            yield message

    async def ImportSession(self, requests: AsyncIterator[Any], context: Any) -> bridge.ImportSessionResponse:
        self.imports = [request async for request in requests]
        return bridge.ImportSessionResponse(origin_session_id="s1")

    async def Run(self, request: bridge.RunRequest, context: Any) -> None:
        if function := self.streams.get("Run"):
            await function(request, context)
            return
        stream = ServerStream(request, context)
        self.runs.put_nowait(stream)
        await stream.serve()


async def refuse(context: Any, code: grpc.StatusCode, reason: str, text: str, **details: Any) -> None:
    """Fails a call as the server does."""
    status = status_pb2.Status(code=code.value[0], message=text)
    info = error_details_pb2.ErrorInfo(domain="copilot-grpc", reason=reason, metadata={"session_id": "s1"})
    messages: list[Any] = [info]
    if field := details.get("field"):
        violation = error_details_pb2.BadRequest.FieldViolation(field=field)
        messages.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry := details.get("retry"):
        message = error_details_pb2.RetryInfo()
        message.retry_delay.FromMilliseconds(int(retry * 1000))
        messages.append(message)
    for message in messages:
        packed = AnyMessage()
        packed.Pack(message)
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, text)


@contextlib.asynccontextmanager
async def serve(fake: Fake) -> AsyncIterator[str]:
    """Serves on a socket; gives the target."""
    server = grpc.aio.server()
    registrations: list[Callable[[Any, Any], None]] = [
        add_SessionServiceServicer_to_server, add_EventServiceServicer_to_server,
        add_CallbackServiceServicer_to_server, add_RuntimeServiceServicer_to_server,
    ]  # fmt: skip
    for add in registrations:
        add(fake, server)
    with tempfile.TemporaryDirectory(prefix="cgrpc-") as folder:
        target = f"unix:{Path(folder, 's')}"
        server.add_insecure_port(target)
        await server.start()
        try:
            yield target
        finally:
            await server.stop(None)


@contextlib.asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Fake, Client]]:
    """A fake server and a client of it."""
    fake = Fake()
    async with serve(fake) as target:
        options.setdefault("reconnect", QUICKLY)
        client = await Client.connect(target, **options)
        try:
            yield fake, client
        finally:
            # Sessions that are still open need not wait for a goodbye.
            for session in list(client._sessions):
                if session._participant is not None and session._participant._task is not None:
                    session._participant._task.cancel()
            await client.close()


def tool_callback(callback_id: str, name: str, arguments: str = "{}", **fields: Any) -> bridge.Callback:
    from copilot_grpc.cli import v1 as cli

    return bridge.Callback(
        callback_id=callback_id,
        session_id="s1",
        kind=bridge.CallbackKind.CALLBACK_KIND_TOOL_CALL,
        tool_call=cli.ExternalToolRequestedData(tool_name=name, tool_call_id="t1", arguments_json=arguments),
        **fields,
    )


def permission_callback(callback_id: str, kind: str = "read") -> bridge.Callback:
    from copilot_grpc.cli import v1 as cli

    request = cli.PermissionRequest()
    getattr(request, kind).SetInParent()
    return bridge.Callback(
        callback_id=callback_id,
        session_id="s1",
        kind=bridge.CallbackKind.CALLBACK_KIND_PERMISSION,
        permission=cli.PermissionRequestedData(request_id=callback_id, permission_request=request),
    )
