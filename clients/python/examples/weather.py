"""Talks to an agent and asks you for permissions. With the argument `worker` it brings the agent's tool instead."""

import sys

from copilot_grpc import PermissionRequest, permission, tool
from copilot_grpc.sync import Client


@tool
def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    print("get_weather runs for", city, flush=True)
    return f"rain in {city}"


def ask(request: PermissionRequest) -> permission.Decision:
    answer = input(f"\nAllow {request.kind}? [y/n] ")
    return request.approve() if answer == "y" else request.reject("The user said no.")


with Client.connect() as client:
    if "worker" in sys.argv:
        with client.join_session("weather", tools=[get_weather]) as session:
            input(f"The worker of {session.id} is ready. Press Enter to end it.\n")
    else:
        with client.open_session("weather", on_permission=ask) as session:
            while prompt := input("> "):
                turn = session.run(prompt)
                for text in turn.deltas():
                    print(text, end="", flush=True)
                print()
                turn.outcome().raise_for_status()
