"""The conformance suite's driver of the Python library. It uses only the library's public API."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "gen"))

from case_runner import CaseRunner  # noqa: E402
from copilot.conformance.v1 import conformance_pb2 as pb  # noqa: E402


def read() -> pb.Request | None:
    """Reads a message of the runner: its size as a varint, then the message. None at the end."""
    size = shift = 0
    while True:
        byte = sys.stdin.buffer.read(1)
        if not byte:
            return None
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return pb.Request.FromString(sys.stdin.buffer.read(size))


def write(response: pb.Response) -> None:
    size, head = response.ByteSize(), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    sys.stdout.buffer.write(bytes(head) + response.SerializeToString())
    sys.stdout.buffer.flush()


async def control(name: str) -> None:
    write(pb.Response(control=pb.Control(name=name)))
    await asyncio.to_thread(read)  # Proceed


async def main() -> None:
    while (request := await asyncio.to_thread(read)) is not None:
        write(pb.Response(result=await CaseRunner(control).run(request.case)))


asyncio.run(main())
