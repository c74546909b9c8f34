"""What a program provides: tokens, files, answers of the model, MCP servers."""

import datetime
import os

import httpx
from copilot import CopilotRequestHandler, SessionFsFileInfo, SessionFsProvider
from copilot.rpc import SessionFSReaddirWithTypesEntry, SessionFSReaddirWithTypesEntryType

from .stage import Recorder, eventually, failure, persisted, turn


async def bearer_token(stage):
    asked = []

    async def token(args):
        asked.append(args)
        return f"token-{len(asked)}"

    provider = stage.provider(bearer_token_provider=token)
    del provider["api_key"]
    session = await stage.client().create_session(**stage.config(provider=provider))
    await turn(session, "hello")
    return {"asked": asked, "used": [r["header"].get("Authorization") for r in await stage.requests()], "persisted": await persisted(session)}


class _Answering(CopilotRequestHandler):
    def __init__(self, answer=None):
        self.asked, self.answer = [], answer

    async def send_request(self, request, ctx):
        self.asked.append([request.method, ctx.transport])
        return self.answer(request) if self.answer else await super().send_request(request, ctx)


async def _inferred(stage, answer=None):
    handler = _Answering(answer)
    session = await stage.client(request_handler=handler).create_session(**stage.config(streaming=True))
    seen = Recorder(session)
    told = await failure(turn(session, "write five words"))
    return {"told": told, "asked": handler.asked, "deltas": seen.text, "persisted": await persisted(session)}


async def model_forwarded(stage):
    return await _inferred(stage)


async def model_refused(stage):
    return await _inferred(stage, lambda r: httpx.Response(400, json={"error": {"message": "not this"}}, request=r))


async def mcp_stdio(stage):
    server = {"type": "stdio", "command": os.environ["SDK_MCP_COMMAND"], "args": [], "env": {"SDK_MCP_SERVER": "1"}, "tools": ["*"]}
    session = await stage.client().create_session(**stage.config(mcp_servers={"echo": server}))

    async def connected():
        return [s for s in (await session.rpc.mcp.list()).servers if s.name == "echo" and s.status.value == "connected"]

    servers = await eventually("the MCP server", connected)
    return {"servers": len(servers), "answer": await turn(session, 'use mcp {"text":"land ho"}'), "persisted": await persisted(session)}


class _Memory(SessionFsProvider):
    def __init__(self):
        self.files: dict[str, str] = {}
        self.folders = {"/"}

    def _file(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def _children(self, path):
        prefix = path.rstrip("/") + "/"
        known = [*self.files, *self.folders]
        return sorted({f[len(prefix):].split("/")[0] for f in known if f.startswith(prefix) and f != prefix})

    async def read_file(self, path):
        return self._file(path)

    async def write_file(self, path, content, mode=None):
        self.files[path] = content

    async def append_file(self, path, content, mode=None):
        self.files[path] = self.files.get(path, "") + content

    async def exists(self, path):
        return path in self.files or path in self.folders

    async def stat(self, path):
        folder = path in self.folders
        time = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        return SessionFsFileInfo(is_file=not folder, is_directory=folder, size=0 if folder else len(self._file(path)), mtime=time, birthtime=time)

    async def mkdir(self, path, recursive, mode=None):
        parts = path.strip("/").split("/")
        self.folders.update("/" + "/".join(parts[: i + 1]) for i in range(len(parts)))

    async def readdir(self, path):
        return self._children(path)

    async def readdir_with_types(self, path):
        kinds = SessionFSReaddirWithTypesEntryType
        return [SessionFSReaddirWithTypesEntry(name=n, type=kinds.FILE if f"{path.rstrip('/')}/{n}" in self.files else kinds.DIRECTORY) for n in self._children(path)]

    async def rm(self, path, recursive, force):
        self.files = {f: c for f, c in self.files.items() if f != path and not f.startswith(path + "/")}

    async def rename(self, src, dest):
        self.files[dest] = self.files.pop(src)


async def session_files(stage):
    files = _Memory()
    client = stage.client(session_fs={"initial_working_directory": "/", "session_state_path": "/state", "conventions": "posix"})
    session = await client.create_session(**stage.config(create_session_fs_handler=lambda _: files))
    answer = await turn(session, "hello")
    await session.disconnect()

    async def kept():
        return [f for f in files.files if f.endswith("events.jsonl")]

    names = await eventually("the events", kept)
    again = await client.resume_session(session.session_id, **stage.config(create_session_fs_handler=lambda _: files))
    return {"answer": answer, "kept": names, "resumed": await turn(again, "again"), "persisted": await persisted(again)}


async def github_session(stage):
    client = stage.client(github_token="token-of-alice", **stage.github())
    config = stage.config()
    del config["provider"]
    session = await client.create_session(**config)
    return {"answer": await turn(session, "hello"), "auth": await client.get_auth_status(), "models": await failure(client.list_models()),
            "used": [r["header"].get("Authorization") for r in await stage.requests()], "persisted": await persisted(session)}


async def telemetry(stage):
    told = []
    session = await stage.client(on_github_telemetry=told.append).create_session(**stage.config())
    await turn(session, "hello")

    async def some():
        return len(told) > 5

    await eventually("telemetry", some)
    return {"answer": True}
