"""Has turns in a session, which continues where an earlier run left it.

python examples/newcomer.py SESSION PROMPT...
"""

import asyncio
import sys

from copilot_grpc import Client, PermissionRequest, SessionOptions, permission, tool


@tool
def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"rain in {city}"


async def main(session_id: str, *prompts: str) -> None:
    approved: list[str] = []

    def once(request: PermissionRequest) -> permission.Decision:
        if approved:
            print("refused", request.kind)
            return request.reject("Once is enough.")
        approved.append(request.kind)
        print("approved", request.kind)
        return request.approve()

    options: SessionOptions = {"tools": [get_weather], "on_permission": once}
    async with Client.connect() as client, client.open_session(session_id, **options) as session:
        for prompt in prompts:
            turn = session.run(prompt)
            async for text in turn.deltas():
                print(text, end="", flush=True)
            outcome = await turn
            print(f"\n{outcome.status}: {outcome.error.message if outcome.error else outcome.text}")
        async for found in client.list_sessions():
            print(found.id, "is", found.state)
        with open("session.tar.gz", "wb") as archive:
            await client.export_session(session.id, archive)


asyncio.run(main(*sys.argv[1:]))
