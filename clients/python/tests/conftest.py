"""Runs coroutine tests on an event loop of their own, and fails if one leaves a task behind."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_run(function, arguments))
    return True


async def _run(function: Any, arguments: dict[str, Any]) -> None:
    await asyncio.wait_for(function(**arguments), 300)
    for _ in range(100):  # grpc ends its own tasks a little later
        left = [t for t in asyncio.all_tasks() if t.get_name().startswith("copilot-grpc")]
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks are left: {left}")
