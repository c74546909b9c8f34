"""Turns: what is sent, what comes back and in what pieces, and how a turn ends."""

from .stage import Recorder, check, failure, persisted, turn


async def simple_turn(stage):
    session = await stage.client().create_session(**stage.config())
    seen = Recorder(session)
    answer = await turn(session, "hello")
    check(answer == "You said: hello", f"the answer is {answer}")
    return {"answer": answer, "live": seen.types, "persisted": await persisted(session),
            "capabilities": session.capabilities, "workspace": session.workspace_path}


async def _streamed(stage, prompt, streaming):
    session = await stage.client().create_session(**stage.config(streaming=streaming))
    seen = Recorder(session)
    answer = await turn(session, prompt)
    check(not streaming or seen.text == answer, "the deltas make the answer")
    return {"answer": answer, "deltas": len(seen.of("assistant.message_delta")), "persisted": await persisted(session)}


async def streaming_on(stage):
    return await _streamed(stage, "write five words", True)


async def streaming_off(stage):
    return await _streamed(stage, "write five words", False)


async def streaming_long(stage):
    return await _streamed(stage, "write a thousand words", True)


async def abort_while_streaming(stage):
    session = await stage.client().create_session(**stage.config(streaming=True))
    seen = Recorder(session)
    await session.send("hold the line")
    await seen.first("assistant.message_delta")
    await session.abort()
    await seen.first("session.idle")
    return {"after": await turn(session, "hello"), "persisted": await persisted(session)}


async def queue(stage):
    session = await stage.client().create_session(**stage.config(streaming=True))
    seen = Recorder(session)
    await session.send("hold the line")
    await seen.first("assistant.message_delta")
    await session.send("second", mode="enqueue")
    await session.send("third", mode="enqueue")
    pending = await session.rpc.queue.pending_items()
    await stage.release()
    await seen.first("session.idle")
    return {"pending": pending, "users": seen.data("user.message", "content", "delivery"),
            "answers": seen.data("assistant.message", "content"), "persisted": await persisted(session)}


async def steering(stage):
    session = await stage.client().create_session(**stage.config(streaming=True))
    seen = Recorder(session)
    await session.send("hold the line")
    await seen.first("assistant.message_delta")
    await session.send("and mind the step", mode="immediate")
    await stage.release()
    await seen.first("session.idle")
    return {"users": seen.data("user.message", "content", "delivery"), "persisted": await persisted(session)}


async def model_error(stage):
    session = await stage.client().create_session(**stage.config())
    seen = Recorder(session)
    return {"refused": await failure(turn(session, "fail 400")), "after": await failure(turn(session, "hello")),
            "errors": seen.data("session.error", "error_type", "message", "status_code"), "persisted": await persisted(session)}


async def attachments(stage):
    file = stage.project / "notes.txt"
    file.write_text("remember the milk\n")
    session = await stage.client().create_session(**stage.config())
    seen = Recorder(session)
    await turn(session, "look at these", attachments=[
        {"type": "file", "path": str(file), "displayName": "notes"},
        {"type": "directory", "path": str(stage.project)},
        {"type": "blob", "data": "AAEC", "mimeType": "application/octet-stream", "displayName": "bytes"},
    ])
    return {"attached": seen.data("user.message", "attachments"), "persisted": await failure(persisted(session))}  # this SDK cannot read them back


async def request_headers(stage):
    session = await stage.client().create_session(**stage.config())
    await turn(session, "one", request_headers={"x-once": "here"})
    await turn(session, "two")
    return {"told": [r["header"].get("X-Once") for r in await stage.requests()]}
