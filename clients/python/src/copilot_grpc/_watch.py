"""Changes of sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ._client import Connection
from ._events import Reader, silence_of
from ._info import SessionChange
from ._retry import Backoff
from .bridge import v1 as bridge
from .errors import ConnectionLost, CopilotError


async def watch_sessions(
    connection: Connection, filter: bridge.SessionFilter | None
) -> AsyncGenerator[SessionChange, None]:
    """Changes, over one stream after another. Heartbeats are left out."""
    backoff, request = Backoff(connection.reconnect), bridge.WatchSessionsRequest(filter=filter)
    while True:
        reader = Reader(connection.events.WatchSessions(request), silence_of(None))
        cause: CopilotError = ConnectionLost("the server ended the stream")
        try:
            while (change := await reader.read()) is not None:
                backoff.reset()
                if change.change != bridge.SessionChange.SESSION_CHANGE_HEARTBEAT:
                    yield SessionChange(change)
        except CopilotError as error:
            cause = error
        finally:
            reader.close()
        if not cause.is_broken or not await backoff.wait(cause):
            raise cause
