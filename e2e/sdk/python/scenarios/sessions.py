"""Sessions: how they begin, are found again, change and end."""

from .stage import Recorder, eventually, failure, persisted, turn

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def status(stage):
    client = stage.client()
    await client.start()
    ping = await client.ping("are you there?")
    return {"message": ping.message, "status": await client.get_status(), "auth": await client.get_auth_status(),
            "models": await failure(client.list_models()), "last": await client.get_last_session_id(),
            "foreground": await failure(client.get_foreground_session_id()), "set": await failure(client.set_foreground_session_id(UNKNOWN))}


async def resume(stage):
    client = stage.client()
    first = await client.create_session(**stage.config())
    await turn(first, "hello")
    await first.disconnect()
    session = await client.resume_session(first.session_id, **stage.config())
    answer = await turn(session, "again")
    return {"answer": answer, "roles": [m["role"] for m in (await stage.requests())[-1]["messages"]], "persisted": await persisted(session)}


async def resume_in_another_process(stage):
    one = stage.client()
    first = await one.create_session(**stage.config())
    await turn(first, "hello")
    await one.stop()
    session = await stage.client().resume_session(first.session_id, **stage.config())
    return {"answer": await turn(session, "again"), "persisted": await persisted(session)}


async def named(stage):
    client = stage.client()
    session = await client.create_session(**stage.config(session_id="of-my-own", name="A fine name"))
    return {"id": session.session_id, "name": await session.rpc.name.get(), "answer": await turn(session, "hello"), "persisted": await persisted(session)}


async def unknown_session(stage):
    client = stage.client()
    await client.start()
    return {"resume": await failure(client.resume_session(UNKNOWN, **stage.config())), "delete": await failure(client.delete_session(UNKNOWN)),
            "metadata": await client.get_session_metadata(UNKNOWN)}


async def after_disconnect(stage):
    session = await stage.client().create_session(**stage.config())
    await turn(session, "hello")
    await session.disconnect()
    return {"send": await failure(session.send("hello")), "events": await failure(session.get_events()), "abort": await failure(session.abort())}


async def list_and_delete(stage):
    client = stage.client()
    for name in ["session-one", "session-two"]:
        session = await client.create_session(**stage.config(session_id=name))
        await turn(session, "hello")

    async def ids():
        return sorted(s.session_id for s in await client.list_sessions())

    async def both():
        found = await ids()
        return found if len(found) == 2 else None

    listed = await eventually("both sessions in the list", both)
    metadata = await client.get_session_metadata("session-one")
    await client.delete_session("session-one")
    return {"listed": listed, "metadata": metadata, "after": await ids(), "gone": await failure(client.resume_session("session-one", **stage.config()))}


async def lifecycle(stage):
    client = stage.client()
    await client.start()
    told = []
    client.on_lifecycle(lambda event: told.append(event.type))
    session = await client.create_session(**stage.config(session_id="watched"))
    await turn(session, "hello")
    await session.disconnect()
    await client.delete_session("watched")

    async def deleted():
        return "session.deleted" in told

    await eventually("the end", deleted)
    return {"kinds": sorted(set(told))}


async def settings(stage):
    session = await stage.client().create_session(**stage.config())
    seen = Recorder(session)
    await session.set_model("other-model")
    await session.log("a note", level="warning")
    await turn(session, "hello")
    return {"model": await session.rpc.model.get_current(), "mode": await session.rpc.mode.get(), "plan": await session.rpc.plan.read(),
            "logged": seen.data("session.warning", "message"), "asked": [r["model"] for r in await stage.requests()], "persisted": await persisted(session)}


async def system_message(stage):
    async def transform(text):
        return f"Sing it. ({len(text) > 0})"

    session = await stage.client().create_session(**stage.config(system_message={
        "mode": "customize", "content": "At the end.",
        "sections": {"tone": {"action": transform}, "guidelines": {"action": "append", "content": "Mind the parrot."}},
    }))
    await turn(session, "hello")
    text = (await stage.requests())[-1]["system"]
    return {"found": [t in text for t in ("Sing it. (True)", "Mind the parrot.", "At the end.")], "persisted": await persisted(session)}
