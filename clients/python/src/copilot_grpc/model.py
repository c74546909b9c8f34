"""Model requests that this program answers, instead of the CLI."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from .errors import HandlerError

if TYPE_CHECKING:
    from ._link import Link
    from .bridge import v1 as bridge

_log = logging.getLogger("copilot_grpc")
_PIECE = 32 << 10


@dataclass(frozen=True)
class ModelRequest:
    """An HTTP request to a model.

    Attributes:
        request_id: Id of the request.
        method: HTTP method.
        url: Absolute URL.
        headers: Values by name.
        body: The body, in pieces; can be read once.
    """

    request_id: str
    method: str
    url: str
    headers: dict[str, list[str]]
    body: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.body])


@dataclass(frozen=True)
class ModelReply:
    """An HTTP response. A stream of events has the header content-type: text/event-stream."""

    status: int = 200
    headers: Mapping[str, Union[str, Sequence[str]]] = field(default_factory=dict)
    body: Union[bytes, AsyncIterable[bytes]] = b""


ModelTransport = Callable[[ModelRequest], Awaitable[ModelReply]]
"""Answers model requests. An exception ends the response like a broken connection; the CLI may retry."""


class _Request:
    """A request in hand."""

    __slots__ = ("pieces", "task")

    def __init__(self) -> None:
        # The server waits for the answer to each piece, so that the queue stays short.
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    async def body(self) -> AsyncIterator[bytes]:
        while (piece := await self.pieces.get()) is not None:
            yield piece


class Models:
    """The model requests that a participant answers."""

    def __init__(self, transport: ModelTransport) -> None:
        self._transport = transport
        self._live: Callable[[], Awaitable[Link]] | None = None
        self._requests: dict[str, _Request] = {}

    def bind(self, live: Callable[[], Awaitable[Link]]) -> None:
        """Sets the function that waits for a link."""
        self._live = live

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Handlers of the callbacks about model requests."""
        return {"model_request_start": self._start, "model_request_chunk": self._chunk}

    def end(self, request_id: str) -> None:
        """Ends a request whose response is no longer needed."""
        request = self._requests.pop(request_id, None)
        if request is not None and request.task is not None:
            request.task.cancel()

    async def close(self) -> None:
        """Ends all requests."""
        tasks = [request.task for request in self._requests.values() if request.task is not None]
        for request_id in list(self._requests):
            self.end(request_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, start: Any) -> None:
        from .cli import v1 as cli

        transports = cli.LlmInferenceHttpRequestStartTransport
        if start.transport == transports.LLM_INFERENCE_HTTP_REQUEST_START_TRANSPORT_WEBSOCKET:
            raise HandlerError("the model transport makes no WebSocket connections")
        request = _Request()
        headers = {name: list(values.items) for name, values in start.headers.items()}
        message = ModelRequest(start.request_id, start.method, start.url, headers, request.body())
        self._requests[start.request_id] = request
        request.task = asyncio.create_task(self._answer(message), name=f"copilot-grpc model {start.request_id}")

    async def _chunk(self, chunk: Any) -> None:
        request = self._requests.get(chunk.request_id)
        if request is None:
            return  # its response is complete
        if chunk.cancel:
            self.end(chunk.request_id)
            return
        request.pieces.put_nowait(base64.b64decode(chunk.data) if chunk.binary else chunk.data.encode())
        if chunk.end:
            request.pieces.put_nowait(None)

    async def _answer(self, request: ModelRequest) -> None:
        from .bridge import v1 as bridge

        try:
            await self._respond(request, await self._transport(request))
        except Exception as error:
            _log.warning(
                "model_transport failed: %s: %s (request %s)", type(error).__name__, error, request.request_id,
                exc_info=error, extra={"request_id": request.request_id},
            )  # fmt: skip
            failure = bridge.ModelResponseError(message="The model transport failed.")
            await self._send(bridge.ModelResponse(
                request_id=request.request_id, chunk=bridge.ModelResponseChunk(error=failure)
            ))  # fmt: skip
        finally:
            self._requests.pop(request.request_id, None)

    async def _respond(self, request: ModelRequest, reply: ModelReply) -> None:
        from .bridge import v1 as bridge
        from .cli import v1 as cli

        head = bridge.ModelResponseHead(status=reply.status)
        for name, values in reply.headers.items():
            head.headers[name].CopyFrom(cli.StringList(items=[values] if isinstance(values, str) else values))
        await self._send(bridge.ModelResponse(request_id=request.request_id, head=head))
        async for piece in _pieces(reply.body):
            await self._send(bridge.ModelResponse(
                request_id=request.request_id, chunk=bridge.ModelResponseChunk(binary=piece)
            ))  # fmt: skip
        await self._send(bridge.ModelResponse(
            request_id=request.request_id, chunk=bridge.ModelResponseChunk(binary=b"", end=True)
        ))  # fmt: skip

    async def _send(self, part: bridge.ModelResponse) -> None:
        from .bridge import v1 as bridge

        assert self._live is not None
        link = await self._live()
        await link.send(bridge.AttachRequest(model_response=part))


async def _pieces(body: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        for at in range(0, len(body), _PIECE):
            yield body[at : at + _PIECE]
        return
    async for piece in body:
        for at in range(0, len(piece), _PIECE):
            yield piece[at : at + _PIECE]
