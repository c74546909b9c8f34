"""The official SDK for Python, as a way to a session: see driver.mjs."""

import asyncio
import json
import resource
import sys
import time

from copilot import CopilotClient, RuntimeConnection
from copilot.session import PermissionHandler
from copilot.tools import Tool, ToolResult


def cpu() -> int:
    """The CPU microseconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e6)


class Driver:
    """A session, and what is counted in it."""

    def __init__(self, client: CopilotClient, tool: str, tool_result: str, config: dict) -> None:
        self.client = client
        self.config = config
        self.tool = Tool(
            name=tool,
            description="a tool",
            handler=lambda _: ToolResult(text_result_for_llm=tool_result),
        )
        self.session = None
        self.events = 0
        self.info = ""
        self.idle = asyncio.Event()
        self.sessions = 1
        self.idles = 0

    async def begin(self) -> None:
        self.session = await self.client.create_session(
            on_permission_request=PermissionHandler.approve_all,
            streaming=True,
            tools=[self.tool],
            **self.config,
        )
        self.session.on(self.on)

    def on(self, event) -> None:
        self.events += 1
        kind = getattr(event.type, "value", event.type)
        if kind == "session.info":
            self.info = event.data.message
        elif kind == "session.idle":
            self.idles += 1
            if self.idles == self.sessions:
                self.idle.set()

    async def turn(self, prompt: str) -> tuple[int, int]:
        """How long the sending took, and the whole turn."""
        self.idle.clear()
        self.idles = 0
        start = time.perf_counter_ns()
        await self.session.send(prompt)
        sent = time.perf_counter_ns() - start
        await self.idle.wait()
        return sent, time.perf_counter_ns() - start

    async def obey(self, line: str) -> dict:
        order, _, rest = line.partition(" ")
        if order == "fresh":
            await self.session.disconnect()
            await self.begin()
            return {}
        if order == "more":
            for _ in range(int(rest)):
                await self.begin()
            self.sessions += int(rest)
            return {}
        if order == "send":
            return {"took": [(await self.turn("hello"))[0] for _ in range(int(rest))]}
        self.events = 0
        before = cpu()
        _, whole = await self.turn(rest)
        return {"took": [whole], "info": self.info, "events": self.events, "cpu": cpu() - before}


async def main() -> None:
    cli, tool, tool_result, config = sys.argv[1:]
    client = CopilotClient(
        connection=RuntimeConnection.for_stdio(path=cli), use_logged_in_user=False, log_level="none"
    )
    await client.start()
    driver = Driver(client, tool, tool_result, json.loads(config))
    await driver.begin()
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await driver.obey(line.rstrip("\n"))), flush=True)
    await client.stop()


asyncio.run(main())
