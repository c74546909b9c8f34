import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio

from copilot_grpc.bridge.v1 import event_service_pb2 as events
from copilot_grpc.bridge.v1 import session_pb2 as sessions
from copilot_grpc.bridge.v1.event_service_pb2_grpc import EventServiceStub

# How long to wait before connecting again, in seconds: longer each time nothing came.
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)


async def follow(
    channel: grpc.aio.Channel,
    cursor: events.SessionCursor,
    broken: Callable[[str, sessions.Position], None] = lambda why, after: None,
) -> AsyncIterator[events.SubscribeResponse]:
    """Follows a session through broken connections and servers that restart.

    Each time the stream breaks, it is opened again after the last position seen. It ends
    with the session's `closed` frame, and raises what does not pass by itself. `broken`
    hears of each break, and raises to give up.
    """
    service = EventServiceStub(channel)
    place = events.SessionCursor()
    place.CopyFrom(cursor)
    failures = 0
    while True:
        why = "the server ended it"
        try:
            async for frame in service.Subscribe(events.SubscribeRequest(sessions=[place])):
                failures = 0
                yield frame
                if frame.HasField("closed"):
                    return
                if frame.HasField("resume_after"):
                    place.after.CopyFrom(frame.resume_after)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            why = error.details() or why
        broken(why, place.after)
        await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        failures += 1
