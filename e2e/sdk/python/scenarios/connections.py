"""TCP: one process with several connections, each a participant of its own."""

from copilot import Tool, ToolResult

from .stage import Recorder, failure, persisted, turn


def tool(name, answer):
    return Tool(name=name, description=f"Tells {name}", parameters={"type": "object", "properties": {"city": {"type": "string"}}}, handler=lambda _: ToolResult(text_result_for_llm=answer))


async def tcp_token(stage):
    _, connect = await stage.listen()
    return {"right": await failure(connect().start()), "wrong": await failure(connect("not-it").start())}


async def tcp_joined(stage):
    first, connect = await stage.listen()
    session = await first.create_session(**stage.config(streaming=True))
    await turn(session, "hello")
    second = await connect().resume_session(session.session_id, **stage.config(streaming=True))
    one, two = Recorder(session), Recorder(second)
    answer = await turn(session, "write five words")
    await two.first("session.idle")
    # The second one's session.resume may come before anybody listens.
    live = [[t for t in seen.types if t != "session.resume"] for seen in (one, two)]
    return {"answer": answer, "one": live[0], "two": live[1],
            "texts": [one.text, two.text], "persisted": await persisted(second)}


async def tcp_tools_of_both(stage):
    first, connect = await stage.listen()
    session = await first.create_session(**stage.config(tools=[tool("get_weather", "sunny")]))
    await connect().resume_session(session.session_id, **stage.config(tools=[tool("get_secret", "hidden")]))
    clash = await failure(connect().resume_session(session.session_id, **stage.config(tools=[tool("get_weather", "mine")])))
    return {"answers": [await turn(session, 'use get_weather {"city":"x"}'), await turn(session, 'use get_secret {"city":"x"}')], "clash": clash, "persisted": await persisted(session)}
