"""Session files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from copilot_grpc import DirectoryFiles, SessionFiles
from copilot_grpc._handlers import Handlers
from copilot_grpc.bridge import v1 as bridge


async def ask(files: SessionFiles, kind: str, **fields: Any) -> Any:
    callback = bridge.Callback(callback_id="c", kind=bridge.CallbackKind.Value(f"CALLBACK_KIND_FS_{kind.upper()}"))
    request = getattr(callback, f"fs_{kind}")
    request.SetInParent()
    for name, value in fields.items():
        setattr(request, name, value)
    handlers = Handlers({}, files.handlers())
    assert handlers.takes(callback, True)
    return getattr(await handlers.answer(callback), f"fs_{kind}")


async def test_operations(tmp_path: Path) -> None:
    files = SessionFiles(DirectoryFiles(tmp_path))
    assert files.message().initial_directory == "/" and files.message().state_path == "/session-state"
    assert not (await ask(files, "mkdir", path="/a/b", recursive=True)).HasField("value")
    assert (await ask(files, "mkdir", path="/x/y")).value.code == 1
    assert not (await ask(files, "write_file", path="/a/f", content="hé", mode=0o640)).HasField("value")
    assert (await ask(files, "read_file", path="/a/f")).content == "hé"
    assert (tmp_path / "a/f").stat().st_mode & 0o777 == 0o640
    await ask(files, "append_file", path="/a/new/g", content="x")
    await ask(files, "append_file", path="/a/new/g", content="y")
    read = await ask(files, "read_file_bytes", path="/a/new/g")
    assert base64.b64decode(read.content) == b"xy"
    await ask(files, "write_file_bytes", path="/a/bin", content=base64.b64encode(b"\xff").decode())
    assert (tmp_path / "a/bin").read_bytes() == b"\xff"
    assert (await ask(files, "read_file", path="/a/none")).error.code == 1
    assert (await ask(files, "exists", path="/a/f")).exists and not (await ask(files, "exists", path="/z")).exists
    stat = await ask(files, "stat", path="/a/f")
    assert stat.is_file and stat.size == 3 and stat.mtime.seconds > 0
    assert (await ask(files, "stat", path="/none")).error.code == 1
    assert list((await ask(files, "readdir", path="/a")).entries) == ["b", "bin", "f", "new"]
    types = (await ask(files, "readdir_with_types", path="/a")).entries
    assert [entry.entry_type for entry in types] == [2, 1, 1, 2]
    await ask(files, "rename", src="/a/f", dest="/a/h")
    assert not (await ask(files, "rm", path="/a/h")).HasField("value")
    assert (await ask(files, "rm", path="/a/h")).value.code == 1
    assert not (await ask(files, "rm", path="/a/h", force=True)).HasField("value")
    assert (await ask(files, "rm", path="/a")).value.code == 2
    assert not (await ask(files, "rm", path="/a", recursive=True)).HasField("value") and os.listdir(tmp_path) == []


def test_paths_are_confined(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to(tmp_path)
    (root / "direct").symlink_to(tmp_path / "secret")
    files = DirectoryFiles(root)
    for path in ("/link/secret", "/direct", "/link/new"):
        with pytest.raises(PermissionError):
            files.read(path)
    with pytest.raises(FileNotFoundError):
        files.read("/../secret")
    with pytest.raises(PermissionError):
        files.write("/link/new", b"", 0o600)
