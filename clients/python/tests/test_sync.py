"""The library without asyncio, on a server whose streams the test plays."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import pytest

from copilot_grpc import tool
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.sync import Client, _loop

from .fake import PATIENCE, QUICKLY, Fake, position, serve, tool_callback
from .test_events import CLOSED, events, frame

T = TypeVar("T")


class Background:
    """A fake server on a loop in another thread."""

    def __init__(self, fake: Fake, target: str, loop: asyncio.AbstractEventLoop) -> None:
        self.fake, self.target, self._loop = fake, target, loop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


@contextmanager
def background() -> Iterator[Background]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = asyncio.run_coroutine_threadsafe(make(), loop).result(PATIENCE)
    served = serve(fake)
    target = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(PATIENCE)
    try:
        yield Background(fake, target, loop)
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def make() -> Fake:
    return Fake()


def test_handlers_may_call_the_client_and_calls_run_in_any_thread() -> None:
    @tool
    def ask() -> str:
        """Asks the server."""
        return str(client.get_session("s1").title)

    with background() as server, ExitStack() as stack:
        server.fake.unary["GetSession"] = lambda *_: bridge.GetSessionResponse(session=bridge.Session(name="mine"))
        client = Client.connect(server.target, reconnect=QUICKLY)
        stack.callback(client.close)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            opening = threads.submit(lambda: client.create_session(tools=[ask]))
            stream = server.do(server.fake.attached())
            session = opening.result(PATIENCE)
            server.do(stream.ask(tool_callback("c", "ask")))
            assert server.do(stream.answer()).answer.tool.text == "mine"
            assert {threads.submit(client.get_session, "s1").result(PATIENCE).title for _ in range(4)} == {"mine"}
            closing = threads.submit(session.close)
            server.do(stream.goodbye())
            closing.result(PATIENCE)


def test_coroutine_handlers_must_not_call_the_client() -> None:
    async def misuse() -> None:
        with pytest.raises(RuntimeError, match="use a plain function"):
            _loop.call(asyncio.sleep(0))

    _loop.call(misuse())


def test_an_interrupt_cancels_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled, started = threading.Event(), threading.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt(self: object, timeout: object = None) -> None:
        started.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures.Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _loop.call(forever())
    assert cancelled.wait(PATIENCE)


def test_streams_and_turns() -> None:
    with background() as server, Client.connect(server.target, reconnect=QUICKLY) as client:
        session = client.session("s1")
        with concurrent.futures.ThreadPoolExecutor() as threads:
            reading = threads.submit(lambda: [str(event.position) for event in session.events()])
            stream = server.do(server.fake.subscriptions.get())
            server.do(stream.send(events(1, 2, 3), frame(3, closed=CLOSED)))
            assert reading.result(PATIENCE) == ["1/1", "1/2", "1/3"]

            with session.events() as left:
                one = threads.submit(next, left)
                stream = server.do(server.fake.subscriptions.get())
                server.do(stream.send(events(1)))
                one.result(PATIENCE)
            server.do(stream.gone.wait())

            turn = session.run("Hello")
            waiting = threads.submit(turn.outcome)
            run = server.do(server.fake.runs.get())
            outcome = bridge.TurnOutcome(
                status=bridge.TurnStatus.TURN_STATUS_COMPLETED, text="hi", end_position=position(1, 9)
            )
            server.do(run.send(bridge.RunResponse(outcome=outcome)))
            assert waiting.result(PATIENCE).text == "hi"
