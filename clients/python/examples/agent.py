"""An agent with a tool, and a person who decides about permissions.

python examples/agent.py "What is the weather in Paris?"
"""

import asyncio
import sys
from typing import Literal

from copilot_grpc import Client, PermissionRequest, ToolError, permission, tool

WEATHER = {"Paris": "rain", "Cairo": "sun"}


@tool
async def get_weather(city: str, unit: Literal["C", "F"] = "C") -> dict[str, object]:
    """Tells the weather in a city.

    Args:
        city: The city's English name.
        unit: Unit of the temperature.
    """
    if city not in WEATHER:
        raise ToolError(f"There is no forecast for {city}, only for {', '.join(WEATHER)}.")
    return {"sky": WEATHER[city], "temperature": 12 if unit == "C" else 54}


def ask_person(request: PermissionRequest) -> bool | permission.Decision:
    """Runs in a thread, so that it may block."""
    print(f"The agent asks for permission: {request.kind} [y/n/s]", flush=True)
    answer = sys.stdin.readline().strip()
    return request.approve_for_session() if answer == "s" else answer == "y"


async def main(prompt: str) -> None:
    async with Client.connect() as client:
        rules = [permission.approve("read"), ask_person]
        async with client.create_session(tools=[get_weather], on_permission=rules) as session:
            turn = session.run(prompt)
            async for text in turn.deltas():
                print(text, end="", flush=True)
            print()
            outcome = await turn
            outcome.raise_for_status()
            await session.delete()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
