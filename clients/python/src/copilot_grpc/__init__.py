"""Sessions of the GitHub Copilot CLI with your own tools, over gRPC.

    async with Client.connect() as client:
        async with client.create_session(tools=[...], on_permission=permission.approve_all) as session:
            print((await session.send_and_wait("Hello")).text)

`copilot_grpc.sync` is the same without asyncio, `copilot_grpc.testing` a server with a scripted model, and
`copilot_grpc.errors` has the exceptions. Messages are in `copilot_grpc.bridge.v1` and `copilot_grpc.cli.v1`. All names
are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import answers as answers
    from . import errors as errors
    from . import permission as permission
    from ._channel import Token as Token
    from ._events import Event as Event
    from ._events import Gap as Gap
    from ._events import Stream as Stream
    from ._inbox import PendingCallback as PendingCallback
    from ._inbox import PendingEnd as PendingEnd
    from ._info import SessionChange as SessionChange
    from ._info import SessionInfo as SessionInfo
    from ._participant import Disconnected as Disconnected
    from ._participant import ParticipantExpired as ParticipantExpired
    from ._participant import Reconnected as Reconnected
    from ._position import Position as Position
    from ._retry import Reconnect as Reconnect
    from ._session import Receipt as Receipt
    from ._session import Session as Session
    from ._turn import Outcome as Outcome
    from ._turn import Turn as Turn
    from .attachments import Attachment as Attachment
    from .client import Client as Client
    from .errors import CopilotError as CopilotError
    from .errors import HandlerError as HandlerError
    from .errors import ServerIncompatible as ServerIncompatible
    from .errors import ServerNotFound as ServerNotFound
    from .errors import SessionClosed as SessionClosed
    from .errors import ToolError as ToolError
    from .errors import TurnFailed as TurnFailed
    from .files import DirectoryFiles as DirectoryFiles
    from .files import SessionFiles as SessionFiles
    from .model import ModelReply as ModelReply
    from .model import ModelRequest as ModelRequest
    from .options import ABSTAIN as ABSTAIN
    from .options import GitHubToken as GitHubToken
    from .options import Hooks as Hooks
    from .options import ParticipantOptions as ParticipantOptions
    from .options import RawRequest as RawRequest
    from .options import SessionOptions as SessionOptions
    from .permission import Decision as Decision
    from .permission import PermissionRequest as PermissionRequest
    from .tools import Tool as Tool
    from .tools import ToolCall as ToolCall
    from .tools import ToolResult as ToolResult
    from .tools import tool as tool

__version__ = "0.1.0"

_MODULES = {
    "answers": "",
    "errors": "",
    "permission": "",
    "Token": "_channel",
    "Event": "_events",
    "Gap": "_events",
    "Stream": "_events",
    "PendingCallback": "_inbox",
    "PendingEnd": "_inbox",
    "SessionChange": "_info",
    "SessionInfo": "_info",
    "Disconnected": "_participant",
    "ParticipantExpired": "_participant",
    "Reconnected": "_participant",
    "Position": "_position",
    "Reconnect": "_retry",
    "Receipt": "_session",
    "Session": "_session",
    "Outcome": "_turn",
    "Turn": "_turn",
    "Attachment": "attachments",
    "Client": "client",
    "CopilotError": "errors",
    "HandlerError": "errors",
    "ServerIncompatible": "errors",
    "ServerNotFound": "errors",
    "SessionClosed": "errors",
    "ToolError": "errors",
    "TurnFailed": "errors",
    "DirectoryFiles": "files",
    "SessionFiles": "files",
    "ModelReply": "model",
    "ModelRequest": "model",
    "ABSTAIN": "options",
    "GitHubToken": "options",
    "Hooks": "options",
    "ParticipantOptions": "options",
    "RawRequest": "options",
    "SessionOptions": "options",
    "Decision": "permission",
    "PermissionRequest": "permission",
    "Tool": "tools",
    "ToolCall": "tools",
    "ToolResult": "tools",
    "tool": "tools",
}
__all__ = [*_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name) if module else import_module(f".{name}", __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
