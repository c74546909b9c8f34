"""Calls that open something, and calls with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class _Closes(Protocol):
    async def close(self) -> None: ...


Closer = TypeVar("Closer", bound=_Closes)
T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[T]) -> T:
    """Returns the result of an awaitable, or cancels it and raises asyncio.TimeoutError after some seconds.

    `asyncio.wait_for` ignores a cancellation that arrives together with the result, up to Python 3.11.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if not done:
        raise asyncio.TimeoutError
    return task.result()


class Opening(Generic[Closer], Awaitable[Closer], AbstractAsyncContextManager[Closer]):
    """A call that opens something: `await` it, or use it with `async with`, which also closes the result."""

    def __init__(self, open_it: Callable[[], Awaitable[Closer]]) -> None:
        self._open_it = open_it
        self._opened: Closer | None = None

    def __await__(self) -> Generator[Any, None, Closer]:
        return self._open_it().__await__()

    async def __aenter__(self) -> Closer:
        self._opened = await self._open_it()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
