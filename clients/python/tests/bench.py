"""The driver of this library for `make bench-libraries`: tool calls and events with the library, and with bare stubs.

python -m tests.bench TARGET
"""

from __future__ import annotations

import asyncio
import json
import sys

import grpc.aio

from copilot_grpc import Client, tool
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.bridge.v1.callback_service_pb2_grpc import CallbackServiceStub
from copilot_grpc.bridge.v1.event_service_pb2_grpc import EventServiceStub


async def stub_events(target: str, size: str) -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        cursor = bridge.SessionCursor(session_id=size)
        count = 0
        async for response in EventServiceStub(channel).Subscribe(bridge.SubscribeRequest(sessions=[cursor])):
            for event in response.events.events:
                count += event.event.assistant_message.content != ""
        return count


async def library_events(target: str, size: str) -> int:
    async with Client.connect(target) as client:
        count = 0
        async for event in client.session(size).events():
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
                arguments = json.loads(callback.tool_call.arguments_json)
                answer = bridge.Answer(tool=bridge.ToolAnswer(text=arguments["text"]))
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


async def main(target: str) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        way, operation = line.split()
        if operation == "call":
            count = await (stub_calls(target) if way == "stubs" else library_calls(target))
        else:
            events = stub_events if way == "stubs" else library_events
            count = await events(target, operation.removeprefix("event"))
        print(count, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
