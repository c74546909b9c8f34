"""Targets, credentials and channels."""

from __future__ import annotations

import ipaddress
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import grpc.aio

PathOrBytes = Union[str, "os.PathLike[str]", bytes]

# A page of events has up to 3 MiB, and lists of callbacks and sessions have no limit in bytes.
_MAX_RECEIVE = 16 << 20
_READS = {
    "SessionService": (
        "GetSession",
        "ListSessions",
        "GetLastSession",
        "GetForegroundSession",
        "ListEvents",
        "GetUsage",
    ),
    "CallbackService": ("ListPending",),
    "RuntimeService": ("GetServerInfo", "ListRuntimes", "Ping", "GetAuthStatus", "ListModels"),
}


class Token:
    """A bearer token. `file` and `function` make tokens that change while a client uses them."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._lock = threading.Lock()

    @classmethod
    def static(cls, token: str) -> Token:
        """Always the same token."""
        return cls(lambda: token)

    @classmethod
    def file(cls, path: Union[str, os.PathLike[str]]) -> Token:
        """The content of a file, without surrounding space. The file is read again after it has changed."""
        state: tuple[int, int, int] = (0, 0, 0)
        text = ""

        def read() -> str:
            nonlocal state, text
            stat = os.stat(path)
            current = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if current != state:
                text = Path(path).read_text(encoding="utf-8").strip()
                state = current
            return text

        return cls(read)

    @classmethod
    def function(cls, function: Callable[[], str]) -> Token:
        """The function's result. gRPC calls it before each call, from a thread; it should cache the token."""
        return cls(function)

    def value(self) -> str:
        """The current token. Safe for use by several threads."""
        with self._lock:
            return self._read()


def choose_token(target: str, token: Union[str, Token, None]) -> Token | None:
    """The token of the program, or else of COPILOT_GRPC_TOKEN, which servers on unix sockets do not ask for."""
    if isinstance(token, Token):
        return token
    text = token if token is not None or is_unix(target) else os.environ.get("COPILOT_GRPC_TOKEN")
    return Token.static(text) if text else None


def check_target(target: str) -> None:
    """Raises ValueError for a URL of HTTP, which gRPC would take for a name of DNS."""
    if target.lower().startswith(("http://", "https://")):
        raise ValueError(
            f"target {target!r} is a URL: a target is host:port, unix:/path or dns:///host:port,"
            " and TLS follows from the options of Client.connect"
        )


def default_target() -> str:
    """The server of COPILOT_GRPC_TARGET, or else the default socket."""
    return os.environ.get("COPILOT_GRPC_TARGET", "") or f"unix:{default_socket()}"


def default_socket() -> Path:
    """The default socket of `copilot-grpc serve`."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return Path(runtime, "copilot-grpc.sock")
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        cache = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return cache / "copilot-grpc" / "copilot-grpc.sock"


def is_unix(target: str) -> bool:
    """Whether a target is a unix socket."""
    return target.startswith(("unix:", "unix-abstract:"))


def is_local(target: str) -> bool:
    """Whether traffic to a target stays on this machine."""
    if is_unix(target):
        return True
    address = target.rpartition("/")[2]  # dns:///host:port, ipv4:host:port
    address = address.removeprefix("ipv4:").removeprefix("ipv6:").removeprefix("dns:")
    host = address.rpartition(":")[0] if address.count(":") == 1 or address.startswith("[") else address
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_channel(
    target: str,
    *,
    token: Token | None = None,
    ca: PathOrBytes | None = None,
    certificate: PathOrBytes | None = None,
    key: PathOrBytes | None = None,
    server_name: str = "",
    insecure: bool = False,
    options: tuple[tuple[str, Any], ...] = (),
) -> grpc.aio.Channel:
    """Opens a channel. Raises ValueError for contradictory settings; connecting happens at the first call."""
    import grpc
    import grpc.aio

    if target.startswith("/"):
        target = f"unix:{target}"
    tls = ca is not None or certificate is not None
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key belong together")
    if insecure and (tls or token is not None) and not is_local(target):
        raise ValueError("insecure: a certificate or a token needs TLS")
    arguments = (*_arguments(server_name), *options)
    if tls or not (insecure or is_local(target)):
        credentials = grpc.ssl_channel_credentials(_content(ca), _content(key), _content(certificate))
    elif token is None:
        return grpc.aio.insecure_channel(target, arguments)
    else:
        # gRPC sends tokens only over channels that it trusts, such as these of one machine.
        local = grpc.LocalConnectionType.UDS if is_unix(target) else grpc.LocalConnectionType.LOCAL_TCP
        credentials = grpc.local_channel_credentials(local)
    channel = grpc.aio.secure_channel(target, credentials, arguments)
    if token is None:
        return channel
    from ._authorized import AuthorizedChannel

    return AuthorizedChannel(channel, token)


def _content(source: PathOrBytes | None) -> bytes | None:
    return source if source is None or isinstance(source, bytes) else Path(source).read_bytes()


def _arguments(server_name: str) -> tuple[tuple[str, Any], ...]:
    # gRPC repeats calls that only read. The library repeats calls that have a request id.
    names = [
        {"service": f"copilot.bridge.v1.{service}", "method": method}
        for service, methods in _READS.items()
        for method in methods
    ]
    retry = {
        "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }  # fmt: skip
    config = {"methodConfig": [{"name": names, "retryPolicy": retry}]}
    override = (("grpc.ssl_target_name_override", server_name),) if server_name else ()
    return (
        ("grpc.max_receive_message_length", _MAX_RECEIVE),
        ("grpc.service_config", json.dumps(config)),
        ("grpc.primary_user_agent", "copilot-grpc-python"),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # The library waits between attempts; gRPC's own wait must not be longer.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Clients of different credentials or life times must not share a connection.
        ("grpc.use_local_subchannel_pool", 1),
        *override,
    )
