"""What happens to a session over time: suspended, shortened, compacted."""

from copilot.rpc import HistoryTruncateRequest

from .stage import failure, persisted, turn, type_of


async def _talked(stage):
    client = stage.client()
    session = await client.create_session(**stage.config())
    for prompt in ["one", "two", "three"]:
        await turn(session, prompt)
    return client, session


async def suspend(stage):
    client, session = await _talked(stage)
    suspended = await failure(session.rpc.suspend())
    again = await client.resume_session(session.session_id, **stage.config())
    return {"suspended": suspended, "answer": await turn(again, "four"), "persisted": await persisted(again)}


async def truncate(stage):
    _, session = await _talked(stage)
    users = [e for e in await session.get_events() if type_of(e) == "user.message"]
    cut = await failure(session.rpc.history.truncate(HistoryTruncateRequest(event_id=str(users[1].id))))
    return {"cut": cut, "answer": await turn(session, "instead"), "persisted": await persisted(session)}


async def compact(stage):
    _, session = await _talked(stage)
    compacted = await failure(session.rpc.history.compact())
    return {"compacted": compacted.get("succeeded", compacted).get("success"), "answer": await turn(session, "four"), "persisted": await persisted(session)}
