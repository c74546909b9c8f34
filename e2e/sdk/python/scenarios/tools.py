"""Tools that the program brings, and the permissions for them and for the CLI's own."""

from copilot import PermissionNoResult, Tool, ToolResult
from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionReject

from .stage import Recorder, check, failure, persisted, plain, turn

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}


def weather(handler, name="get_weather", **more):
    return Tool(name=name, description="What the weather is like", parameters=CITY, handler=handler, **more)


async def _with_tool(stage, handler, prompt='use get_weather {"city":"Paris"}'):
    called = []

    async def call(invocation):
        called.append([invocation.tool_name, invocation.arguments])
        return handler(invocation)

    session = await stage.client().create_session(**stage.config(tools=[weather(call)]))
    seen = Recorder(session)
    answer = await turn(session, prompt)
    return {"answer": answer, "called": called, "results": seen.data("tool.execution_complete", "success", "error"), "persisted": await persisted(session)}


async def tool_text(stage):
    return await _with_tool(stage, lambda i: ToolResult(text_result_for_llm=f"sunny in {i.arguments['city']}"))


async def tool_failure(stage):
    return await _with_tool(stage, lambda _: ToolResult(text_result_for_llm="cannot see", result_type="failure", error="fog"))


async def tool_raises(stage):
    def broken(_):
        raise RuntimeError("no window here")

    return await _with_tool(stage, broken)


async def tool_unknown(stage):
    return await _with_tool(stage, lambda _: ToolResult(text_result_for_llm="sunny"), "use no such tool")


async def tools_set(stage):
    session = await stage.client().create_session(**stage.config(tools=[weather(lambda _: ToolResult(text_result_for_llm="sunny"))]))
    await turn(session, "hello")
    changed = await failure(session.set_tools([weather(lambda _: ToolResult(text_result_for_llm="hidden"), name="get_secret")]))
    answer = await turn(session, 'use get_secret {"city":"x"}')
    offered = [sorted(t for t in r["tools"] if t.startswith("get_")) for r in await stage.requests()]
    return {"changed": changed, "answer": answer, "offered": offered, "persisted": await persisted(session)}


async def _asking(stage, decide):
    asked = []

    def handler(request, invocation):
        asked.append(plain(request))
        return decide(request)

    session = await stage.client().create_session(**stage.config(on_permission_request=handler))
    seen = Recorder(session)
    answer = await turn(session, 'use bash {"command":"echo out > made.txt","description":"Make a file"}')
    return {"answer": answer, "asked": asked, "results": seen.data("tool.execution_complete", "success", "error"), "made": (stage.project / "made.txt").exists(), "persisted": await persisted(session)}


async def permission_approved(stage):
    record = await _asking(stage, lambda _: PermissionDecisionApproveOnce())
    check(record["made"], "the command ran")
    return record


async def permission_denied(stage):
    record = await _asking(stage, lambda _: PermissionDecisionReject(feedback="not today"))
    check(not record["made"], "the command did not run")
    return record


async def permission_raises(stage):
    def broken(_):
        raise RuntimeError("the guard fell asleep")

    return await _asking(stage, broken)


async def permission_of_the_other(stage):
    first, connect = await stage.listen()
    session = await first.create_session(**stage.config(on_permission_request=lambda *_: PermissionNoResult()))
    await connect().resume_session(session.session_id, **stage.config(on_permission_request=lambda *_: PermissionDecisionReject(feedback="says the other")))
    return {"answer": await turn(session, 'use bash {"command":"true","description":"Nothing"}'), "persisted": await persisted(session)}
