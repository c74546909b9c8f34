"""Prints a session's events, one a line, and stores its position in a file.

Broken connections and restarts of the server leave no trace in the output. After a restart of this program, the output
continues where it ended.

python examples/watcher.py SESSION_ID POSITION_FILE
"""

import asyncio
import os
import sys
from pathlib import Path

from copilot_grpc import Client, Gap, Position


async def main(session_id: str, file: Path) -> None:
    new = file.with_name(file.name + ".new")
    after = Position.parse(file.read_text()) if file.exists() else None
    async with Client.connect() as client:
        session = client.session(session_id)
        async for event in session.events(after=after, exclude=["model.*"]):
            if isinstance(event, Gap):
                print(f"missing: {event.after} to {event.position}, {event.reason}", flush=True)
            else:
                print(f"{event.position} {event.type}", flush=True)
            # The file is replaced at once, so that the end of this program cannot leave half of it.
            new.write_text(str(event.position))
            os.replace(new, file)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
