"""What a scenario stands on: clients of the official SDK that know nothing of where their
runtime comes from, and ways to write down what happened."""

import asyncio
import dataclasses
import datetime
import enum
import json
import os
import pathlib
import re
import urllib.request
import uuid

from copilot import CopilotClient, PermissionHandler, RuntimeConnection

# How long anything may take: far more than anything takes.
PATIENCE = 60.0


class Stage:
    """One scenario's surroundings, as the driver lays them out in SDK_* variables."""

    def __init__(self) -> None:
        self.model = os.environ["SDK_MODEL"]
        self.work = pathlib.Path(os.environ["SDK_WORK"])
        self.project = self.work / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self._cli = {"path": os.environ["SDK_CLI"], "args": json.loads(os.environ["SDK_CLI_ARGS"])}
        self._clients: list[CopilotClient] = []
        self._server: asyncio.subprocess.Process | None = None

    def client(self, **options) -> CopilotClient:
        """A client over stdio, unless the options name a connection."""
        given = {"connection": RuntimeConnection.for_stdio(**self._cli), "working_directory": str(self.project),
                 "base_directory": str(self.work / "home"), "log_level": "error", "use_logged_in_user": False}
        client = CopilotClient(**{**given, **options})
        self._clients.append(client)
        return client

    async def _serve(self, token: str) -> int:
        """The port of a process that listens, started as the SDK does it, with more patience."""
        env = {**os.environ, "COPILOT_CONNECTION_TOKEN": token, "COPILOT_HOME": str(self.work / "home")}
        self._server = await asyncio.create_subprocess_exec(
            self._cli["path"], *self._cli["args"], "--headless", "--no-auto-update", "--log-level", "error", "--no-auto-login", "--port", "0",
            env=env, cwd=self.project, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE):
            async for line in self._server.stdout:
                if found := re.search(rb"listening on port (\d+)", line):
                    return int(found[1])
        raise RuntimeError("the server has ended before it listened")

    async def listen(self, token: str = "a-connection-token"):
        """A process that listens, and a way to connect further clients to it."""
        first = self.client(connection=RuntimeConnection.for_tcp(connection_token=token, **self._cli))
        port = None

        def connect(given: str = token) -> CopilotClient:
            client = CopilotClient(connection=RuntimeConnection.for_uri(f"127.0.0.1:{port}", connection_token=given))
            self._clients.append(client)
            return client

        try:
            await first.start()
            port = first.runtime_port
        except RuntimeError as error:
            # The SDK gives it 10 s, which on a busy machine is too little, for the CLI by itself too.
            if "Timeout waiting for CLI server to start" not in str(error):
                raise
            await first.force_stop()
            port = await self._serve(token)
            first = connect()
        return first, connect

    def provider(self, **more) -> dict:
        return {"type": "openai", "wire_api": "completions", "base_url": f"{self.model}/v1", "api_key": "offline", **more}

    def config(self, **more) -> dict:
        """A session's configuration, with the scripted model and everything allowed."""
        return {"model": "offline-model", "provider": self.provider(), "on_permission_request": PermissionHandler.approve_all, **more}

    def github(self) -> dict:
        """A client's options with which GitHub's own API is the scripted model."""
        return {"env": {**os.environ, "COPILOT_API_URL": self.model, "COPILOT_DEBUG_GITHUB_API_URL": self.model}}

    async def requests(self) -> list[dict]:
        """What the model was asked."""
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{self.model}/_offline/requests").read())
        return [r for r in json.loads(text)["requests"] if r.get("messages")]

    async def release(self) -> None:
        """Lets a held answer go on."""
        call = urllib.request.Request(f"{self.model}/_offline/release?gate=gate", method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(call).read())

    async def close(self) -> None:
        for client in reversed(self._clients):
            try:
                await client.stop()
            except Exception:  # noqa: BLE001 - the scenario is over
                await client.force_stop()
        if self._server:
            self._server.terminate()
            await self._server.wait()


class Recorder:
    """Writes down the events of a session as they come."""

    def __init__(self, session=None) -> None:
        self.events: list = []
        self._changed = asyncio.Event()
        if session:
            session.on(self.take)

    def take(self, event) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind: str) -> list:
        return [e for e in self.events if type_of(e) == kind]

    def data(self, kind: str, *members: str) -> list:
        return [{m: plain(getattr(e.data, m, None)) for m in members} for e in self.of(kind)]

    @property
    def types(self) -> list[str]:
        """Those of the events that a session keeps. Its start may come before anybody can listen."""
        return [t for e in self.events if not e.ephemeral and (t := type_of(e)) != "session.start"]

    @property
    def text(self) -> str:
        return "".join(e.data.delta_content for e in self.of("assistant.message_delta"))

    async def first(self, kind: str, count: int = 1):
        """Waits for an event of a type, or for so many of them, and gives the last of these."""
        async with asyncio.timeout(PATIENCE):
            while len(self.of(kind)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(kind)[count - 1]


def type_of(event) -> str:
    return event.raw_type or event.type.value


async def persisted(session) -> list[str]:
    """The types of the events that a session keeps, in order."""
    return [type_of(e) for e in await session.get_events() if not e.ephemeral]


async def persisted_hooked(session) -> dict[str, list[str]]:
    """The same where there are hooks, once all have ended, with those of the session's start apart: the CLI
    goes on with the prompt's hooks meanwhile, and which end first is a matter of time."""

    async def ended():
        events = [e for e in await session.get_events() if not e.ephemeral]
        types = [type_of(e) for e in events]
        return events if types.count("hook.start") == types.count("hook.end") else None

    kept = await eventually("the hooks to end", ended)
    start = [e for e in kept if type_of(e).startswith("hook.") and e.data.hook_type == "sessionStart"]
    return {"start": [type_of(e) for e in start], "then": [type_of(e) for e in kept if e not in start]}


async def failure(call) -> dict:
    """What a call fails with; that it does not is an outcome, too."""
    try:
        return {"succeeded": plain(await call)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is written down
        return {"error": type(error).__name__, "code": getattr(error, "code", None), "message": str(error)}


async def turn(session, prompt: str, **more):
    """Sends a prompt and gives the answer's text."""
    answer = await session.send_and_wait(prompt, timeout=PATIENCE, **more)
    return answer.data.content if answer else None


async def eventually(what: str, ask):
    """Asks again until an answer will do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await ask()
            if answer:
                return answer
            await asyncio.sleep(0.05)


def check(holds: bool, claim: str) -> None:
    """An assertion: it must hold wherever the scenario runs."""
    if not holds:
        raise AssertionError(f"does not hold: {claim}")


def plain(value):
    """A value of the SDK's as JSON has it."""
    match value:
        case enum.Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case uuid.UUID() | pathlib.PurePath() | BaseException():
            return str(value)
        case datetime.datetime():
            return "<time>"
        case datetime.timedelta():
            return "<duration>"
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case set() | frozenset():
            return sorted(plain(v) for v in value)
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return type(value).__name__
