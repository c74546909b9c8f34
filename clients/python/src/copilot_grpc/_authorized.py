"""A channel whose calls remember the bearer token that they sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from ._channel import Token
from .errors import CopilotError, from_rpc

_ATTRIBUTE = "_copilot_grpc_sent"


class _Sent(grpc.AuthMetadataPlugin):  # type: ignore[misc, unused-ignore]
    """The token of one call. gRPC asks for it in a thread."""

    def __init__(self, source: Token) -> None:
        self._source, self._token = source, ""

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            self._token = self._source.value()
            callback((("authorization", f"Bearer {self._token}"),), None)
        except Exception as error:
            callback((), error)

    def is_replaced(self) -> bool:
        """Whether the source has another token now. May block."""
        try:
            return bool(self._token) and self._source.value() != self._token
        except Exception:
            return False


class AuthorizedChannel(grpc.aio.Channel):  # type: ignore[misc, unused-ignore]
    """Adds the token to each call of a channel that gRPC trusts with tokens."""

    def __init__(self, channel: grpc.aio.Channel, source: Token) -> None:
        self._channel, self._source = channel, source

    async def __aenter__(self) -> AuthorizedChannel:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Ends the channel."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for another state of the connection."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits for the connection."""
        await self._channel.channel_ready()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Makes a function that calls a method."""
        return self._authorized(self._channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Makes a function that calls a method with a stream of responses."""
        return self._authorized(self._channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Makes a function that calls a method with a stream of requests."""
        return self._authorized(self._channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Makes a function that calls a method with streams of requests and responses."""
        return self._authorized(self._channel.stream_stream(*args, **kwargs))

    def _authorized(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("credentials") is not None:
                return method(*args, **kwargs)
            sent = _Sent(self._source)
            kwargs["credentials"] = grpc.metadata_call_credentials(sent)
            call = method(*args, **kwargs)
            setattr(call, _ATTRIBUTE, sent)
            return call

        return start


async def failure_of(call: Any, error: grpc.aio.AioRpcError) -> CopilotError:
    """The exception of a failed call. It is a broken connection's if the call's token has been replaced meanwhile."""
    made = from_rpc(error)
    sent = getattr(call, _ATTRIBUTE, None)
    if made.code == "UNAUTHENTICATED" and sent is not None:
        made.token_replaced = await asyncio.to_thread(sent.is_replaced)
    return made
