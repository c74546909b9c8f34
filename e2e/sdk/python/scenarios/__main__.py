"""python -m scenarios NAME plays a scenario and prints its record, one line of JSON; without
a name it lists those there are."""

import asyncio
import inspect
import json
import sys

from . import callbacks, connections, life, providers, sessions, tools, turns
from .stage import Stage, plain

MODULES = [turns, sessions, tools, callbacks, providers, connections, life]


def scenarios() -> dict:
    return {
        name: play
        for module in MODULES
        for name, play in vars(module).items()
        if inspect.iscoroutinefunction(play) and play.__module__ == module.__name__ and not name.startswith("_")
    }


async def main(name: str) -> None:
    stage = Stage()
    try:
        print(json.dumps(plain(await scenarios()[name](stage))))
    finally:
        await stage.close()


if len(sys.argv) < 2:
    print("\n".join(scenarios()))
else:
    asyncio.run(main(sys.argv[1]))
