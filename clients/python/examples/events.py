"""Prints what happens in a session, from its beginning until its turn is over, one event a
line. It lives through broken connections: cut one, and it goes on where it was.

    python -m examples.events ADDRESS SESSION_ID
"""

import asyncio
import os
import sys

from copilot_client import connect, follow
from copilot_grpc.bridge.v1 import event_service_pb2 as events
from copilot_grpc.bridge.v1.session_pb2 import Position


def at(position: Position) -> str:
    return f"{position.epoch}/{position.seq}"


def broken(why: str, after: Position) -> None:
    print(f"broken after {at(after)}: {why}", flush=True)


async def main(address: str, session_id: str) -> None:
    # Everything, also the large types that are left out by default: positions then follow
    # each other without a gap.
    everything = events.EventFilter(include_large=True)
    cursor = events.SessionCursor(session_id=session_id, filter=everything)
    async with connect(address, os.environ.get("COPILOT_GRPC_TOKEN")) as channel:
        async for frame in follow(channel, cursor, broken):
            match frame.WhichOneof("frame"):
                case "events":
                    for event in frame.events.events:
                        print(f"event {at(event.position)} {event.event.type}", flush=True)
                        if event.event.type == "session.idle":
                            return
                case "gap":
                    # `from` is a word of Python's.
                    print(f"gap {at(frame.gap.after)} to {at(frame.gap.through)}", flush=True)
                case "closed":
                    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
