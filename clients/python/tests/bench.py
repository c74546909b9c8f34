"""Compares the library with the bare stubs: CPU time of the client for each event and each tool call.

    python -m tests.bench

A scripted server in another process sends events and callbacks as fast as gRPC takes them. CPU time, because other
programs on the machine disturb it less than elapsed time. Prints the least of several runs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from typing import Any

import grpc.aio

from copilot_grpc import Client, tool
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.bridge.v1.callback_service_pb2_grpc import CallbackServiceStub
from copilot_grpc.bridge.v1.event_service_pb2_grpc import EventServiceStub

from .fake import Attached, Fake, serve, tool_callback
from .test_events import CLOSED, events, frame

EVENTS, CALLS, RUNS = 96_000, 3_000, 7


class Busy(Fake):
    """Sends events in frames, or tool calls one after the other."""

    async def Subscribe(self, request: bridge.SubscribeRequest, context: Any) -> None:
        size = int(request.sessions[0].session_id)
        for first in range(1, EVENTS, size):
            await context.write(events(*range(first, first + size)))
        await context.write(frame(EVENTS, closed=CLOSED))

    async def Attach(self, requests: Any, context: Any) -> None:
        stream = Attached((await anext(requests)).start, context)
        await stream.start()
        for number in range(CALLS):
            await stream.ask(tool_callback(str(number), "echo", '{"text": "x"}'))
            await anext(requests)
            await stream.done(str(number))
        await stream.tell(closed=CLOSED)


def run_server(pipe: Any) -> None:
    async def main() -> None:
        async with serve(Busy()) as target:
            pipe.send(target)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(main())


async def stub_events(target: str, size: int) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        cursor = bridge.SessionCursor(session_id=str(size))
        count = 0
        async for response in EventServiceStub(channel).Subscribe(bridge.SubscribeRequest(sessions=[cursor])):
            for event in response.events.events:
                count += event.event.assistant_message.content != ""
        return count


async def library_events(target: str, size: int) -> int:
    async with Client.connect(target) as client:
        count = 0
        async for event in client.session(str(size)).events():
            count += event.data.content != ""
        return count


async def stub_calls(target: str) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        stream = CallbackServiceStub(channel).Attach()
        start = bridge.AttachStart(create=bridge.CreateSessionRequest())
        await stream.write(bridge.AttachRequest(start=start))
        count = 0
        async for response in stream:
            if response.stream.HasField("callback_requested"):
                callback = response.stream.callback_requested.callback
                answer = bridge.Answer(tool=bridge.ToolAnswer(text="x"))
                given = bridge.CallbackAnswer(callback_id=callback.callback_id, answer=answer)
                await stream.write(bridge.AttachRequest(answer=given))
                count += 1
        return count


async def library_calls(target: str) -> int:
    count = 0

    @tool
    async def echo(text: str) -> str:
        """Repeats a text."""
        nonlocal count
        count += 1
        return text

    async with Client.connect(target) as client:
        session = await client.create_session(tools=[echo])
        await session.wait_ended()
    return count


def least(make: Any, *arguments: Any) -> float:
    """The least CPU time of several runs, in microseconds for each event or call."""
    found: list[float] = []
    for _ in range(RUNS):
        begin = time.process_time()
        count = asyncio.run(make(*arguments))
        found.append((time.process_time() - begin) / count * 1e6)
    return min(found)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=run_server, args=(there,))
    server.start()
    target = here.recv()
    try:
        for size in (1, 16):
            stub, library = least(stub_events, target, size), least(library_events, target, size)
            print(f"event, {size:2} in a frame: stubs {stub:6.1f} µs, library {library:6.1f} µs, {library / stub:.2f}")
        stub, library = least(stub_calls, target), least(library_calls, target)
        print(f"tool call:              stubs {stub:6.1f} µs, library {library:6.1f} µs, {library / stub:.2f}")
    finally:
        here.send(None)
        server.join()


if __name__ == "__main__":
    main()
