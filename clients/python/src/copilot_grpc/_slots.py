"""A limit of tasks that do something at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """Limits how many tasks do something at once. The others wait in order.

    Unlike asyncio's semaphore, a free slot is taken without a coroutine: this is done several times for each callback.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Takes a slot if one is free."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Waits for a slot, and takes it."""
        if self.take_now():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:  # the slot came together with the cancellation
                self.release()
            raise

    def release(self) -> None:
        """Gives the slot to the task that waits for the longest time."""
        for turn in self._waiting:
            if not turn.done():
                self._waiting.remove(turn)
                turn.set_result(None)
                return
        self._free += 1
