"""The examples, and the code of the README, as their readers run them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copilot_grpc import Client
from copilot_grpc.testing import Server, call

from .fake import PATIENCE, soon

HERE = Path(__file__).parent.parent
SCRIPT = [*call("get_weather", when={"user": "weather"}, city="Paris", then="It says: {{tool_result}}")]
BLOCK = re.compile(r"<!-- run(?:: (\w+))? -->\n```python\n(.*?)```", re.DOTALL)
# Surroundings of the README's fragments.
SESSION = """
import asyncio
from copilot_grpc import Client
async def main():
    async with Client.connect() as client:
        async with client.create_session() as session:
            await session.send_and_wait("first")
{code}
asyncio.run(main())
"""
CLIENT = """
import asyncio
from copilot_grpc import Client
async def main():
    async with Client.connect() as client:
{code}
asyncio.run(main())
"""

INBOX = """
import asyncio
from copilot_grpc import Client, tool
from copilot_grpc.bridge import v1 as bridge
@tool
def get_weather(city: str) -> str:
    return "rain in " + city
async def main():
    async with Client.connect() as client:
        async def watch():
{code}
        watching = asyncio.ensure_future(watch())
        options = {"labels": {"team": "payments"}, "session_handlers": bridge.Handlers(permission=True)}
        async with client.create_session(tools=[get_weather], **options) as session:
            print((await session.send_and_wait("What is the weather?")).text)
        watching.cancel()
asyncio.run(main())
"""

# docs/clients.md has one fragment.
ARCHIVE = """
import asyncio
from copilot_grpc import Client
async def main():
    async with Client.connect() as client, Client.connect() as other:
        async with client.create_session() as session:
            await session.send_and_wait("first")
            session_id = session.id
{code}
            print(made.origin_session_id == session_id, made.session.session_id)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(SCRIPT, args=["--drain-grace", "1s"]) as running:
        yield running


def run(server: Server, *command: str, text: str = "", cwd: Path = HERE) -> str:
    env = {**os.environ, "COPILOT_GRPC_TARGET": server.target, "PYTHONDEVMODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], input=text, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE * 2
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def readme() -> list[Any]:
    blocks = BLOCK.findall((HERE / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) > 10
    return [pytest.param(kind, code, id=code.strip().splitlines()[0][:40]) for kind, code in blocks]


@pytest.mark.parametrize(("kind", "code"), readme())
def test_readme(server: Server, tmp_path: Path, kind: str, code: str) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    frame = {"": "{code}", "session": SESSION, "client": CLIENT, "inbox": INBOX}[kind]
    code = textwrap.indent(code, " " * {"": 0, "session": 12, "client": 8, "inbox": 12}[kind])
    program = tmp_path / "program.py"
    program.write_text(frame.replace("{code}", code), encoding="utf-8")
    output = run(server, str(program), cwd=tmp_path)
    if "rain in" in code and "print" in code and not kind:
        assert output == "It says: rain in Paris\n"
    if kind == "inbox":
        assert " permission\n" in output and "It says: rain in Paris\n" in output


@pytest.mark.parametrize(("kind", "code"), readme()[:2])
def test_first_programs_fail_with_their_turn(tmp_path: Path, kind: str, code: str) -> None:
    assert not kind
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    with Server({"rules": []}) as server:
        env = {**os.environ, "COPILOT_GRPC_TARGET": server.target}
        done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "TurnFailed" in done.stderr, (done.stdout, done.stderr)


def test_archive_in_the_guide(server: Server, tmp_path: Path) -> None:
    guide = (HERE / "../../docs/clients.md").read_text(encoding="utf-8")
    [(kind, code)] = BLOCK.findall(guide)
    assert kind == "archive"
    program = tmp_path / "program.py"
    program.write_text(ARCHIVE.replace("{code}", textwrap.indent(code, " " * 12)), encoding="utf-8")
    assert run(server, str(program), cwd=tmp_path) == "True copy\n"


def test_agent(server: Server) -> None:
    output = run(server, "examples/agent.py", "What is the weather?", text="y\n")
    asked, said = output.splitlines()
    assert asked == "The agent asks for permission: custom-tool [y/n/s]"
    assert said == 'It says: {"sky": "rain", "temperature": 12}'


def test_shared(server: Server) -> None:
    assert run(server, "examples/shared.py").splitlines() == [
        "participants: boss, worker",
        "boss: permits custom-tool",
        "worker: tells the weather in Paris",
        "agent: It says: rain in Paris",
    ]


async def test_watcher_survives_restarts_of_server_and_program(tmp_path: Path) -> None:
    async with Server(args=["--drain-grace", "200ms"]) as server, Client.connect(server.target) as client:
        async with client.create_session() as session:
            file, lines = tmp_path / "position", list[str]()

            async def watch(until: str) -> None:
                """Runs the example until a turn has ended after the line `until`."""
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "examples/watcher.py", session.id, str(file),
                    cwd=HERE, env={**os.environ, "COPILOT_GRPC_TARGET": server.target}, stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                assert process.stdout is not None
                seen = False
                try:
                    while line := (await soon(process.stdout.readline())).decode().strip():
                        lines.append(line)
                        seen = seen or line.split()[1] == until
                        if seen and line.endswith(" session.idle"):
                            break
                finally:
                    process.kill()
                    await process.wait()

            async def turns(count: int) -> None:
                """Waits until that many turns have ended, and until the example has stored where."""
                while (
                    sum(line.endswith("session.idle") for line in lines) < count
                    or file.read_text() != lines[-1].split()[0]
                ):
                    await asyncio.sleep(0.01)

            first = asyncio.ensure_future(watch("external"))
            await session.send_and_wait("one")
            await soon(turns(1))
            await server.restart()
            assert (await session.send_and_wait("two")).ok
            await soon(turns(2))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

            again = asyncio.ensure_future(watch("user.message"))
            assert (await session.send_and_wait("three")).ok
            await soon(again)
            positions = [tuple(map(int, line.split()[0].split("/"))) for line in lines]
            assert positions == sorted(set(positions))
            assert [line.split()[1] for line in lines].count("user.message") == 3
