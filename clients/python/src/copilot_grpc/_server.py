"""A private server: a child process of this program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Union

from ._await import within
from .errors import ServerNotFound

BINARY = "copilot-grpc"
_STARTED = "address="
# Time for the server's orderly end.
STOP_TIMEOUT = 20.0


class ServerProcess:
    """`copilot-grpc serve` on a socket of its own. The server ends with this program, also if the program crashes."""

    def __init__(
        self, *, binary: Union[str, os.PathLike[str]] = BINARY, args: Sequence[str] = (),
        env: Mapping[str, str] | None = None, start_timeout: float = 60.0,
        configure: Callable[[Path], list[str]] = lambda folder: [],
    ) -> None:  # fmt: skip
        """`configure` writes files into the server's directory and returns further arguments."""
        self._binary, self._args, self._env = os.fspath(binary), list(args), dict(env or {})
        self._start_timeout, self._configure = start_timeout, configure
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._folder: Path | None = None
        self._output: list[str] = []
        self._ready = asyncio.Event()

    @property
    def target(self) -> str:
        """The server's address, for `Client.connect`."""
        if self._folder is None:
            raise RuntimeError("the server has not been started")
        return f"unix:{self._folder / 's.sock'}"

    @property
    def folder(self) -> Path:
        """The server's private directory, which `stop` deletes."""
        assert self._folder is not None
        return self._folder

    async def start(self) -> None:
        """Starts the server and waits until it listens. Raises ServerNotFound with its output if it does not."""
        # A socket's path must be short, so that the test runner's directories are not an option.
        self._folder = Path(tempfile.mkdtemp(prefix="cgrpc-"))
        try:
            self._args += self._configure(self._folder)
            await self._start_process()
        except BaseException:
            await self.stop()
            raise

    async def restart(self) -> None:
        """Ends the server and starts it again in its directory."""
        await self._stop_process()
        await self._start_process()

    async def _start_process(self) -> None:
        path = shutil.which(self._binary)
        if path is None:
            raise ServerNotFound(f"{self._binary!r} is not on PATH: install copilot-grpc, or give the binary's path")
        self._output.clear()
        self._ready.clear()
        self._process = await asyncio.create_subprocess_exec(
            path, "serve", "--listen", self.target, "--data-dir", str(self.folder / "data"), *self._args,
            env={**os.environ, **self._env}, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read(), name="copilot-grpc server output")
        try:
            await within(self._start_timeout, self._ready.wait())
        except asyncio.TimeoutError:
            raise ServerNotFound(f"{path} did not start in time: {self.output[-2000:]}") from None
        if not self._listens():
            raise ServerNotFound(f"{path} did not start: {self.output[-2000:]}")

    @property
    def output(self) -> str:
        """What the server has printed, up to the last 1000 lines."""
        return "".join(self._output)

    async def stop(self) -> None:
        """Ends the server and deletes its directory."""
        await self._stop_process()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _stop_process(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await within(STOP_TIMEOUT, self._process.wait())
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            await self._reading

    def _listens(self) -> bool:
        return any(_STARTED in line for line in self._output)

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        async for line in self._process.stdout:
            self._output.append(line.decode(errors="replace"))
            del self._output[:-1000]
            if _STARTED in self._output[-1]:
                self._ready.set()
        await self._process.wait()
        self._ready.set()


def _end_with_parent() -> None:
    """Makes a child end with this program, even if the program is killed."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
