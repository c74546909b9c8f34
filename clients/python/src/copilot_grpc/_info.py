"""What lists and streams of sessions return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .bridge import v1 as bridge

SessionState = Literal["loaded", "unloaded", "disconnected", "credentials_needed", "stored", "damaged", "unspecified"]


def word_of(enum: Any, prefix: str, value: int) -> str:
    """An enum's value as a lower-case word; its number if it is newer than this library."""
    return str(enum.Name(value)).removeprefix(prefix).lower() if value in enum.values() else str(value)


@dataclass(frozen=True)
class SessionInfo:
    """A session, as lists, `Session.get` and `Client.watch_sessions` return it.

    Attributes:
        proto: Everything that the server says about the session.
    """

    proto: bridge.Session

    @property
    def id(self) -> str:
        """The session's id."""
        return self.proto.session_id

    @property
    def state(self) -> SessionState:
        """Whether the session is in memory, and what opens it otherwise."""
        from .bridge import v1 as bridge

        return word_of(bridge.SessionState, "SESSION_STATE_", self.proto.state)  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    @property
    def title(self) -> str:
        """The session's name, or else its summary; empty before the first turn."""
        return self.proto.name or self.proto.summary

    @property
    def model(self) -> str:
        """The model's id; empty if the server does not know it."""
        return self.proto.model_id


@dataclass(frozen=True)
class SessionChange:
    """A change of one of the caller's sessions.

    Attributes:
        proto: The change as a message.
    """

    proto: bridge.WatchSessionsResponse

    @property
    def kind(self) -> str:
        """The change, such as "created", "updated" or "deleted"."""
        from .bridge import v1 as bridge

        return word_of(bridge.SessionChange, "SESSION_CHANGE_", self.proto.change)

    @property
    def session(self) -> SessionInfo:
        """The session after the change; only its id if it was deleted or is no longer shared."""
        return SessionInfo(self.proto.session)
