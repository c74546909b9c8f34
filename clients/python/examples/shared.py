"""Two participants in one session: one brings a tool, the other one asks and decides about permissions.

python examples/shared.py
"""

import asyncio

from copilot_grpc import Client, PermissionRequest, tool


@tool
async def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    print(f"worker: tells the weather in {city}", flush=True)
    return f"rain in {city}"


def decide(request: PermissionRequest) -> bool:
    print(f"boss: permits {request.kind}", flush=True)
    return request.kind == "custom-tool"


async def main() -> None:
    async with Client.connect(name="boss") as boss, Client.connect(name="worker") as worker:
        async with boss.create_session(on_permission=decide) as session:
            async with worker.join_session(session.id, tools=[get_weather]):
                participants = (await session.get()).proto.participants
                print("participants:", ", ".join(sorted(p.name for p in participants)), flush=True)
                outcome = await session.send_and_wait("What is the weather in Paris?")
                print("agent:", outcome.text, flush=True)
            await session.delete()


if __name__ == "__main__":
    asyncio.run(main())
