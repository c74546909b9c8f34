"""A server whose model is a script, for tests of agents without an account or a network.

    async with Server([say("rain", when={"user": "weather"})]) as server:
        async with Client.connect(server.target) as client: ...

The server needs `copilot-grpc` on PATH and a Copilot CLI, which it finds on PATH or installs. Conditions and steps are
those of docs/offline-model.md of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Union

from ._server import BINARY, ServerProcess

Step = Mapping[str, Any]
Rule = Mapping[str, Any]
_MODEL = "A script plays the model: "  # printed by the server
_DEFAULT: Rule = {"reply": [{"text": "You said: {{user}}"}]}


def text(content: str) -> Step:
    """A step: the model sends text."""
    return {"text": content}


def tool_call(name: str, /, **arguments: Any) -> Step:
    """A step: the model calls a tool."""
    return {"tool_call": {"name": name, "arguments": arguments}}


def wait_for(gate: str) -> Step:
    """A step: the model waits for `Server.release`."""
    return {"wait_for": gate}


def reply(*steps: Step, when: Mapping[str, Any] | None = None, **rule: Any) -> Rule:
    """A rule: the model answers with these steps. `rule` has its other keys, such as `times` and `name`."""
    return {"when": dict(when or {}), "reply": [dict(step) for step in steps], **rule}


def say(content: str, *, when: Mapping[str, Any] | None = None, **rule: Any) -> Rule:
    """A rule: the model answers with text. `{{user}}` and `{{tool_result}}` are replaced."""
    return reply(text(content), when=when, **rule)


def call(name: str, /, *, when: Mapping[str, Any], then: str = "{{tool_result}}", **arguments: Any) -> list[Rule]:
    """Two rules: the model calls a tool, and answers its result with text. Use it as `[*call(...), say(...)]`."""
    return [reply(tool_call(name, **arguments), when=when), say(then, when={"tool_result": {"name": name}})]


class Server:
    """A private server with a scripted model, in directories of its own. Use it with `with` or `async with`.

    Attributes:
        target: The address for `Client.connect`.
    """

    def __init__(
        self, script: Union[Sequence[Rule], Mapping[str, Any], str, os.PathLike[str]] = (), *,
        binary: Union[str, os.PathLike[str]] = BINARY, args: Sequence[str] = (),
        env: Mapping[str, str] | None = None, start_timeout: float = 120.0,
    ) -> None:  # fmt: skip
        """
        Args:
            script: Rules, a whole script as a mapping, or the path of a script. Text that no rule matches is repeated.
            binary: The server's binary, looked up on PATH.
            args: Further arguments of `copilot-grpc serve`.
            env: Further environment variables, such as COPILOT_CLI_PATH.
            start_timeout: Seconds for the start, which may install the CLI.
        """
        self._script, self._binary, self._args = script, binary, list(args)
        self._env, self._start_timeout = dict(env or {}), start_timeout
        self._process: ServerProcess | None = None
        self._loop: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    @property
    def target(self) -> str:
        """The server's address, for `Client.connect`."""
        return self._running().target

    @property
    def output(self) -> str:
        """What the server has printed."""
        return self._running().output

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Server:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="copilot-grpc test server", daemon=True)
        thread.start()
        self._loop = loop, thread
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result()
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop[0]).result()
        self._end_loop()

    async def start(self) -> None:
        """Starts the server."""
        process = ServerProcess(
            binary=self._binary, args=self._args, env=self._env, start_timeout=self._start_timeout,
            configure=self._configure,
        )  # fmt: skip
        await process.start()
        self._process = process

    async def stop(self) -> None:
        """Ends the server and deletes its directories."""
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def restart(self) -> None:
        """Ends the server and starts it again with its sessions, on the same socket."""
        await self._running().restart()

    def release(self, gate: str, *, timeout: float = 10.0) -> None:
        """Lets the model continue after `wait_for(gate)`. Blocks for a moment."""
        deadline = time.monotonic() + timeout
        while (at := self.output.rfind(_MODEL)) < 0:
            if time.monotonic() > deadline:
                raise TimeoutError("the server has not printed the model's address")
            time.sleep(0.01)
        url = self.output[at + len(_MODEL) :].split()[0]
        request = urllib.request.Request(f"{url}/_offline/release?gate={gate}", method="POST")
        with urllib.request.urlopen(request, timeout=timeout):
            pass

    def _configure(self, folder: Path) -> list[str]:
        """Writes the script, and returns arguments that separate the server from the user's own."""
        script = self._script
        if not isinstance(script, (str, os.PathLike)):
            whole = script if isinstance(script, Mapping) else {"rules": _flat(script), "default": _DEFAULT}
            path = folder / "model.yaml"
            path.write_text(json.dumps(whole), encoding="utf-8")  # JSON is YAML
            script = path
        return [
            "--offline-model", os.fspath(script), "--no-login", "--home", str(folder / "copilot"),
            "--user-home", str(folder), "--work-dir", str(folder),
        ]  # fmt: skip

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process

    def _end_loop(self) -> None:
        assert self._loop is not None
        loop, thread = self._loop
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = None


def _flat(rules: Sequence[Any]) -> list[Rule]:
    """Rules, some of which may be lists of rules."""
    return [rule for item in rules for rule in (item if isinstance(item, list) else [item])]
