"""What the CLI asks of a program besides tools and permissions."""

import json

from copilot import CommandDefinition, Tool, ToolResult

from .stage import Recorder, failure, persisted, persisted_hooked, turn


async def _question(stage, answer, **more):
    asked = []

    def handler(request, invocation):
        asked.append([request, invocation])
        return answer(request)

    session = await stage.client().create_session(**stage.config(on_user_input_request=handler))
    told = await turn(session, "use ask_user " + json.dumps({"question": "Which way?", **more}))
    return {"told": told, "asked": asked, "persisted": await persisted(session)}


async def input_choice(stage):
    return await _question(stage, lambda r: {"answer": r["choices"][1], "wasFreeform": False}, choices=["left", "right"])


async def input_free(stage):
    return await _question(stage, lambda _: {"answer": "up", "wasFreeform": True})


async def elicitation(stage):
    asked = []
    answers = iter([{"action": "accept", "content": {"confirmed": True}}, {"action": "accept", "content": {"selection": "blue"}}, {"action": "decline"}])

    def handler(context):
        asked.append(context)
        return next(answers)

    session = await stage.client().create_session(**stage.config(on_elicitation_request=handler))
    return {"capabilities": session.capabilities, "confirm": await session.ui.confirm("Sure?"), "select": await session.ui.select("Which?", ["red", "blue"]),
            "declined": await session.ui.confirm("Sure?"), "asked": asked, "persisted": await persisted(session)}


async def commands(stage):
    ran = []

    def broken(_):
        raise RuntimeError("broken")

    session = await stage.client().create_session(**stage.config(commands=[
        CommandDefinition(name="deploy", description="Ships it", handler=ran.append), CommandDefinition(name="break", handler=broken)]))
    from copilot.rpc import CommandsInvokeRequest

    return {"deploy": await failure(session.rpc.commands.invoke(CommandsInvokeRequest(name="deploy", input="to the moon"))),
            "broken": await failure(session.rpc.commands.invoke(CommandsInvokeRequest(name="break"))), "ran": ran}


async def plan(stage):
    asked = []

    def handler(request, invocation):
        asked.append(request)
        return {"approved": True, "selectedAction": "interactive"}

    session = await stage.client().create_session(**stage.config(on_exit_plan_mode_request=handler))
    told = await turn(session, 'use exit_plan_mode {"summary":"We go."}', agent_mode="plan")
    return {"told": told, "asked": asked, "mode": await session.rpc.mode.get(), "persisted": await persisted(session)}


KINDS = ["pre_tool_use", "post_tool_use", "post_tool_use_failure", "user_prompt_submitted", "user_prompt_transformed", "session_start", "session_end", "error_occurred", "agent_stop"]


async def _hooked(stage, answers, prompt='use get_weather {"city":"Paris"}'):
    called = []

    def hook(kind):
        def call(given, _):
            called.append([kind, {k: v for k, v in given.items() if k in ("toolName", "toolArgs", "prompt", "source", "reason", "error", "workingDirectory")}])
            return answers.get(kind)

        return call

    tool = Tool(name="get_weather", description="Weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}},
                handler=lambda i: ToolResult(text_result_for_llm=f"sunny in {i.arguments['city']}"))
    session = await stage.client().create_session(**stage.config(tools=[tool], hooks={f"on_{kind}": hook(kind) for kind in KINDS}))
    seen = Recorder(session)
    answer = await failure(turn(session, prompt))
    record = {"answer": answer, "called": list(called), "results": seen.data("tool.execution_complete", "success", "error"), "persisted": await persisted_hooked(session)}
    await session.disconnect()
    return {**record, "ended": [kind for kind, _ in called[len(record["called"]):]]}


async def hooks_all(stage):
    return await _hooked(stage, {})


async def hooks_deny(stage):
    return await _hooked(stage, {"pre_tool_use": {"permissionDecision": "deny", "permissionDecisionReason": "not before lunch"}})


async def hooks_change(stage):
    return await _hooked(stage, {"pre_tool_use": {"permissionDecision": "allow", "modifiedArgs": {"city": "Rome"}}, "user_prompt_submitted": {"additionalContext": "a note"}})
