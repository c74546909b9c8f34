"""Back-off of streams and calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .errors import CopilotError

T = TypeVar("T")


@dataclass(frozen=True)
class Reconnect:
    """Defines how broken streams are opened again. Times are in seconds.

    Attributes:
        first: Maximum of the first pause. Pauses are random up to a maximum that doubles.
        longest: Limit of that maximum.
        give_up_after: Time without a live stream after which the last error is final; 0 disables reconnection.
    """

    first: float = 0.1
    longest: float = 5.0
    give_up_after: float = 300.0


class Backoff:
    """The pauses between the attempts of one stream or call."""

    def __init__(self, policy: Reconnect) -> None:
        self._policy = policy
        self._clock = asyncio.get_running_loop().time
        self.reset()

    def reset(self) -> None:
        """Notes that the stream is alive."""
        self._limit = self._policy.first
        self._alive_at = self._clock()
        self._token_was_replaced = False

    async def wait(self, error: CopilotError) -> bool:
        """Sleeps before the next attempt. Returns False, without sleeping, if there is to be none.

        A replaced token is a reason for one attempt.
        """
        if error.token_replaced and self._token_was_replaced:
            return False
        self._token_was_replaced = self._token_was_replaced or error.token_replaced
        delay = error.retry_after + random.uniform(0, self._limit)
        self._limit = min(self._limit * 2, self._policy.longest)
        if self._clock() - self._alive_at + delay >= self._policy.give_up_after:
            return False
        await asyncio.sleep(delay)
        return True


async def repeat(policy: Reconnect, call: Callable[[], Awaitable[T]]) -> T:
    """Makes an idempotent call until it succeeds or fails for good."""
    backoff = Backoff(policy)
    while True:
        try:
            return await call()
        except CopilotError as error:
            final = not error.is_broken or error.code == "DEADLINE_EXCEEDED"  # the limit is the caller's
            if final or not await backoff.wait(error):
                raise
