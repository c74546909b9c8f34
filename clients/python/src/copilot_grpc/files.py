"""Session files that this program stores, instead of the CLI."""

from __future__ import annotations

import base64
import os
import posixpath
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    from .bridge import v1 as bridge

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


@dataclass(frozen=True)
class FileInfo:
    """Attributes of a file or directory. `modified_at` is in seconds since 1970."""

    name: str
    is_directory: bool
    size: int = 0
    modified_at: float = 0.0


class Files(Protocol):
    """A file system with absolute paths and slashes. Methods run in threads.

    A missing path raises FileNotFoundError; other errors are OSError as well.
    """

    def read(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Replaces a file's content. Its directory exists."""
        ...

    def append(self, path: str, data: bytes, mode: int) -> None:
        """Adds to a file. Creates the file and its directories if necessary."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Attributes of a path."""
        ...

    def make_directory(self, path: str, recursive: bool, mode: int) -> None:
        """Creates a directory. With `recursive` also its parents, and an existing one is no error."""
        ...

    def list_directory(self, path: str) -> list[FileInfo]:
        """The entries of a directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Moves a path."""
        ...

    def remove(self, path: str, recursive: bool) -> None:
        """Removes a file, or with `recursive` a directory with its content."""
        ...


class DirectoryFiles:
    """`Files` in a directory of this machine. Paths, symbolic links included, cannot leave the directory."""

    def __init__(self, directory: Union[str, os.PathLike[str]]) -> None:
        self._root = Path(directory).resolve()

    def _path(self, path: str) -> Path:
        found = self._root / posixpath.normpath("/" + path.lstrip("/")).lstrip("/")
        if not found.parent.resolve().is_relative_to(self._root) or not found.resolve().is_relative_to(self._root):
            raise PermissionError(f"{path} is outside of the directory")
        return found

    def read(self, path: str) -> bytes:
        """Implements Files."""
        return self._path(path).read_bytes()

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Implements Files."""
        with open(self._path(path), "wb", opener=_opener(mode)) as file:
            file.write(data)

    def append(self, path: str, data: bytes, mode: int) -> None:
        """Implements Files."""
        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
        with open(target, "ab", opener=_opener(mode)) as file:
            file.write(data)

    def stat(self, path: str) -> FileInfo:
        """Implements Files."""
        return _info(self._path(path))

    def make_directory(self, path: str, recursive: bool, mode: int) -> None:
        """Implements Files."""
        self._path(path).mkdir(mode=mode, parents=recursive, exist_ok=recursive)

    def list_directory(self, path: str) -> list[FileInfo]:
        """Implements Files."""
        return [_info(entry) for entry in sorted(self._path(path).iterdir())]

    def rename(self, source: str, target: str) -> None:
        """Implements Files."""
        self._path(source).rename(self._path(target))

    def remove(self, path: str, recursive: bool) -> None:
        """Implements Files."""
        target = self._path(path)
        if not target.is_dir() or target.is_symlink():
            target.unlink()
        elif recursive:
            shutil.rmtree(target)
        else:
            target.rmdir()


def _opener(mode: int) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags, mode)


def _info(path: Path) -> FileInfo:
    stat = path.stat()
    return FileInfo(path.name, path.is_dir(), stat.st_size, stat.st_mtime)


class SessionFiles:
    """Stores the files of one session, which the CLI would write to its home.

    The session can only be used while a participant with its files is attached; `disconnect` and `delete` write too.
    The session has no SQLite database unless the options on_fs_sqlite_* of a subclass's `handlers` provide one.
    """

    def __init__(
        self, files: Files, *, initial_directory: str = "/", state_path: str = "/session-state", key: str = ""
    ) -> None:
        """
        Args:
            files: The files of this session.
            initial_directory: The session's first working directory, a path in `files`.
            state_path: Directory in `files` for the CLI's files about the session.
            key: Sessions with the same key share a CLI process; default: one for this session.
        """
        self._files, self._key = files, key
        self._initial_directory, self._state_path = initial_directory, state_path

    def message(self) -> bridge.SessionFileSystem:
        """The configuration for the server."""
        from .bridge import v1 as bridge

        return bridge.SessionFileSystem(
            key=self._key, initial_directory=self._initial_directory, state_path=self._state_path, binary=True
        )

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Handlers by kind of callback."""
        names = (
            "read_file", "read_file_bytes", "write_file", "write_file_bytes", "append_file", "exists", "stat",
            "mkdir", "readdir", "readdir_with_types", "rm", "rename",
        )  # fmt: skip
        return {f"fs_{name}": getattr(self, f"_{name}") for name in names}

    def _read_file(self, request: Any) -> Any:
        data, error = _attempt(lambda: self._files.read(request.path))
        return _cli().CallbackSessionFsServiceReadFileResponse(
            content=(data or b"").decode(errors="replace"), error=error
        )

    def _read_file_bytes(self, request: Any) -> Any:
        data, error = _attempt(lambda: self._files.read(request.path))
        content = base64.b64encode(data or b"").decode()
        return _cli().CallbackSessionFsServiceReadFileBytesResponse(content=content, error=error)

    def _exists(self, request: Any) -> Any:
        try:
            self._files.stat(request.path)
        except (FileNotFoundError, NotADirectoryError):
            return _cli().CallbackSessionFsServiceExistsResponse(exists=False)
        return _cli().CallbackSessionFsServiceExistsResponse(exists=True)

    def _stat(self, request: Any) -> Any:
        info, error = _attempt(lambda: self._files.stat(request.path))
        response = _cli().CallbackSessionFsServiceStatResponse(error=error)
        response.mtime.FromNanoseconds(int(info.modified_at * 1e9) if info else 0)
        response.birthtime.CopyFrom(response.mtime)
        if info is not None:
            response.is_directory, response.is_file, response.size = info.is_directory, not info.is_directory, info.size
        return response

    def _readdir(self, request: Any) -> Any:
        entries, error = _attempt(lambda: self._files.list_directory(request.path))
        names = [entry.name for entry in entries or ()]
        return _cli().CallbackSessionFsServiceReaddirResponse(entries=names, error=error)

    def _readdir_with_types(self, request: Any) -> Any:
        cli = _cli()
        entries, error = _attempt(lambda: self._files.list_directory(request.path))
        types, prefix = cli.SessionFsReaddirWithTypesEntryType, "SESSION_FS_READDIR_WITH_TYPES_ENTRY_TYPE_"
        found = [
            cli.SessionFsReaddirWithTypesEntry(
                name=entry.name, entry_type=types.Value(prefix + ("DIRECTORY" if entry.is_directory else "FILE"))
            )
            for entry in entries or ()
        ]
        return cli.CallbackSessionFsServiceReaddirWithTypesResponse(entries=found, error=error)

    def _write_file(self, request: Any) -> Any:
        data = request.content.encode()
        _, error = _attempt(lambda: self._files.write(request.path, data, _mode(request, FILE_MODE)))
        return _cli().CallbackSessionFsServiceWriteFileResponse(value=error)

    def _write_file_bytes(self, request: Any) -> Any:
        data = base64.b64decode(request.content)
        _, error = _attempt(lambda: self._files.write(request.path, data, _mode(request, FILE_MODE)))
        return _cli().CallbackSessionFsServiceWriteFileBytesResponse(value=error)

    def _append_file(self, request: Any) -> Any:
        data = request.content.encode()
        _, error = _attempt(lambda: self._files.append(request.path, data, _mode(request, FILE_MODE)))
        return _cli().CallbackSessionFsServiceAppendFileResponse(value=error)

    def _mkdir(self, request: Any) -> Any:
        mode = _mode(request, DIRECTORY_MODE)
        _, error = _attempt(lambda: self._files.make_directory(request.path, request.recursive, mode))
        return _cli().CallbackSessionFsServiceMkdirResponse(value=error)

    def _rename(self, request: Any) -> Any:
        _, error = _attempt(lambda: self._files.rename(request.src, request.dest))
        return _cli().CallbackSessionFsServiceRenameResponse(value=error)

    def _rm(self, request: Any) -> Any:
        def remove() -> None:
            try:
                self._files.remove(request.path, request.recursive)
            except FileNotFoundError:
                if not request.force:
                    raise

        _, error = _attempt(remove)
        return _cli().CallbackSessionFsServiceRmResponse(value=error)


def _cli() -> Any:
    from .cli import v1 as cli

    return cli


def _mode(request: Any, default: int) -> int:
    return int(request.mode) & 0o777 if request.HasField("mode") else default


def _attempt(action: Callable[[], Any]) -> tuple[Any, Any]:
    """The result of an action, and its error as a message."""
    try:
        return action(), None
    except OSError as error:
        codes = _cli().SessionFsErrorCode
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        code = codes.SESSION_FS_ERROR_CODE_ENOENT if missing else codes.SESSION_FS_ERROR_CODE_UNKNOWN
        return None, _cli().SessionFsError(code=code, message=str(error))
