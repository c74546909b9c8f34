"""Runs the functions of a program that answer callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


async def call_handler(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls a function: a coroutine function on the event loop, any other in a thread.

    A cancelled thread cannot be stopped; its result is dropped.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*args, **kwargs)
    context = contextvars.copy_context()
    call = partial(context.run, partial(function, *args, **kwargs))
    result = await asyncio.get_running_loop().run_in_executor(_executor(), call)
    return await result if inspect.isawaitable(result) else result


def _executor() -> Any:
    """The threads of plain handlers. They are this library's own, so that slow handlers do not fill the loop's."""
    global _threads
    if _threads is None:
        from concurrent.futures import ThreadPoolExecutor

        _threads = ThreadPoolExecutor(max_workers=MAX_THREADS, thread_name_prefix="copilot-grpc-handler")
    return _threads


MAX_THREADS = 128
_threads: Any = None


def is_traced() -> bool:
    """Whether the program uses OpenTelemetry."""
    return "opentelemetry" in sys.modules


@contextmanager
def trace(traceparent: str, tracestate: str) -> Iterator[None]:
    """Makes a callback's trace the current one, in a program that uses OpenTelemetry."""
    from opentelemetry import context, propagate

    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def current_trace() -> dict[str, str]:
    """The traceparent and tracestate of the current span; empty without OpenTelemetry."""
    if not is_traced():
        return {}
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {key: value for key, value in carrier.items() if key in ("traceparent", "tracestate")}
