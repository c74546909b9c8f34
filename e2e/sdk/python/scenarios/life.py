"""What happens to a session over time: suspended, shortened, compacted."""

import asyncio

from copilot.generated.rpc import HostLocalServerOptions
from copilot.host import AhpHostOptions
from copilot.rpc import HistoryTruncateRequest

from .stage import PATIENCE, failure, persisted, turn, type_of


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


async def ahp_host(stage):
    """A host of the Agent Host Protocol: started, with a published session, and ended."""
    client = stage.client()
    await client.start()
    exited = asyncio.get_running_loop().create_future()

    async def refuse(_):
        raise RuntimeError("no session is created here")

    host = await client.start_ahp_host(AhpHostOptions(local_server=HostLocalServerOptions(), create_session=refuse, on_exit=exited.set_result))
    session = await client.create_session(**stage.config())
    before = await host.list_sessions()
    published = await host.publish_session(session.session_id)
    during = await host.list_sessions()
    withdrawn = [await host.unpublish_session(session.session_id), await host.unpublish_session(session.session_id)]
    answer = await turn(session, "hello")
    unknown = await failure(host.publish_session("nobody"))
    await host.dispose()
    end = await asyncio.wait_for(exited, PATIENCE)
    return {"url": host.url, "token": len(host.token or ""), "before": len(before.sessions), "published": published.to_dict(),
            "during": [summary.resource for summary in during.sessions], "withdrawn": [w.to_dict() for w in withdrawn],
            "answer": answer, "unknown": unknown, "exited": end.to_dict(),
            "again": await failure(host.dispose()), "list": await failure(host.list_sessions())}


async def ahp_host_left(stage):
    """A host that its program does not end: it ends with the client."""
    client = stage.client()
    await client.start()
    exited = asyncio.get_running_loop().create_future()
    await client.start_ahp_host(AhpHostOptions(local_server=HostLocalServerOptions(), on_exit=exited.set_result))
    await client.stop()
    return {"exited": (await asyncio.wait_for(exited, PATIENCE)).to_dict()}
