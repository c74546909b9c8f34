"""Handlers of every kind of callback, and what they may return."""

from __future__ import annotations

import asyncio
from typing import Any, get_type_hints

import pytest

from copilot_grpc import (
    ABSTAIN,
    GitHubToken,
    HandlerError,
    ModelReply,
    ModelRequest,
    PermissionRequest,
    ToolCall,
    answers,
    permission,
    tool,
)
from copilot_grpc._handlers import Handlers
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.cli import v1 as cli
from copilot_grpc.options import Hooks, SessionOptions

from .fake import connected, permission_callback, soon, tool_callback


def callback(kind: str, **fields: Any) -> bridge.Callback:
    """A callback of a kind, with fields of its request."""
    message = bridge.Callback(
        callback_id="c", session_id="s1", kind=bridge.CallbackKind.Value(f"CALLBACK_KIND_{kind.upper()}")
    )
    request = getattr(message, kind)
    request.SetInParent()
    for name, value in fields.items():
        if isinstance(value, (list, dict)):
            getattr(request, name).extend(value) if isinstance(value, list) else getattr(request, name).update(value)
        else:
            setattr(request, name, value)
    return message


async def answer(message: bridge.Callback, **options: Any) -> bridge.Answer:
    handlers = Handlers(options, {})  # type: ignore[arg-type]
    assert handlers.takes(message, offered=True)
    return await handlers.answer(message)


def test_every_kind_has_an_option() -> None:
    kinds = {name.removeprefix("CALLBACK_KIND_").lower() for name in bridge.CallbackKind.keys()}  # noqa: SIM118
    elsewhere = {"unspecified", "tool_call", "raw", "model_request_start", "model_request_chunk"}
    files = {kind for kind in kinds if kind.startswith("fs_")}
    options = SessionOptions.__optional_keys__
    assert kinds - elsewhere - files == {o.removeprefix("on_") for o in options if o.startswith("on_")} - {
        "request",
        "connection",
    }
    for kind in kinds - {"unspecified", "raw", "tool_call", "permission"}:
        assert kind in bridge.Callback.DESCRIPTOR.fields_by_name and kind in bridge.Answer.DESCRIPTOR.fields_by_name


def test_every_hook_has_a_function() -> None:
    cases = {field.name for field in cli.HookInvocation.DESCRIPTOR.oneofs_by_name["data"].fields}
    assert set(Hooks.__optional_keys__) == cases - {"unrecognized"}
    outputs = {field.name for field in cli.HookOutput.DESCRIPTOR.oneofs_by_name["variant"].fields}
    assert cases - outputs == {"subagent_start", "subagent_stop"}


def test_annotations_of_options_resolve() -> None:
    from copilot_grpc import files, model, options, tools

    names = {**vars(options), "bridge": bridge, "cli": cli, "SessionFiles": files.SessionFiles, "Tool": tools.Tool,
             "ModelTransport": model.ModelTransport, "Rule": permission.Rule}  # fmt: skip
    hints = get_type_hints(SessionOptions, names, names)
    assert set(hints) == set(SessionOptions.__optional_keys__)


@pytest.mark.parametrize(
    ("kind", "fields", "result", "want"),
    [
        ("user_input", {"choices": ["a", "b"]}, "a", {"answer": "a", "was_freeform": False}),
        ("user_input", {"choices": ["a", "b"]}, "c", {"answer": "c", "was_freeform": True}),
        ("exit_plan_mode", {"recommended_action": "go"}, True, {"approved": True, "selected_action": "go"}),
        ("exit_plan_mode", {}, "shorter", {"approved": False, "feedback": "shorter"}),
        ("auto_mode_switch", {}, True, {"response": 1}),
        ("auto_mode_switch", {}, False, {"response": 3}),
        ("command", {}, None, {}),
        ("sampling", {}, {"role": "assistant"}, {"response_json": '{"role": "assistant"}'}),
        ("sampling", {}, None, {}),
        ("provider_token", {}, "tok", {"token": "tok"}),
        ("canvas_close", {}, None, {}),
    ],
)
async def test_short_answers(kind: str, fields: dict[str, Any], result: Any, want: dict[str, Any]) -> None:
    given = await answer(callback(kind, **fields), **{f"on_{kind}": lambda request: result})
    assert given.WhichOneof("answer") == kind
    message = getattr(given, kind)
    for name, value in want.items():
        assert getattr(message, name) == value, name
    assert given == answers.of(callback(kind, **fields), result)


async def test_answers_with_cases() -> None:
    form = await answer(callback("elicitation"), on_elicitation=lambda r: {"s": "x", "n": 1, "b": True, "l": ["a"]})
    content = form.elicitation.content
    assert form.elicitation.action == 1 and content["s"].string_value == "x" and content["n"].double_value == 1
    assert content["b"].bool_value and list(content["l"].list.items) == ["a"]
    declined = await answer(callback("elicitation"), on_elicitation=lambda r: None)
    assert declined.elicitation.action == 2
    queued = await answer(callback("queued_command"), on_queued_command=lambda r: True)
    assert queued.queued_command.WhichOneof("variant") == "true"
    oauth = await answer(callback("mcp_oauth"), on_mcp_oauth=lambda r: "tok")
    assert oauth.mcp_oauth.token.access_token == "tok"
    oauth = await answer(callback("mcp_oauth"), on_mcp_oauth=lambda r: None)
    assert oauth.mcp_oauth.HasField("cancelled")
    headers = await answer(callback("mcp_headers"), on_mcp_headers=lambda r: {"a": "b"})
    assert dict(headers.mcp_headers.headers.headers) == {"a": "b"}
    token = await answer(callback("github_token"), on_github_token=lambda r: GitHubToken("t", 60))
    assert (token.github_token.token.access_token, token.github_token.token.expires_in) == ("t", 60)
    token = await answer(callback("github_token"), on_github_token=lambda r: None)
    assert token.github_token.HasField("cancelled")
    request = callback("system_message_transform")
    request.system_message_transform.sections["tone"].content = "loud"
    request.system_message_transform.sections["rules"].content = "none"
    sections = (
        await answer(request, on_system_message_transform=lambda r: {"tone": "quiet"})
    ).system_message_transform.sections
    assert {name: section.content for name, section in sections.items()} == {"tone": "quiet", "rules": "none"}


async def test_handlers_fail_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async def secret(request: object) -> str:
        raise RuntimeError("/home/secret")

    failed = await answer(callback("user_input"), on_user_input=secret)
    assert failed.error.message == "The handler failed."
    assert "/home/secret" in caplog.text

    def said(request: object) -> str:
        raise HandlerError("no one is here")

    assert (await answer(callback("user_input"), on_user_input=said)).error.message == "no one is here"
    wrong = await answer(callback("user_input"), on_user_input=lambda r: 5)
    assert wrong.error.message == "The handler failed."
    assert (await answer(callback("user_input"), on_user_input=lambda r: ABSTAIN)).HasField("abstain")
    large = await answer(callback("user_input"), on_user_input=lambda r: "x" * (16 << 20))
    assert "bytes, more than" in large.error.message


async def test_permission_verdicts() -> None:
    async def decide(rule: Any, kind: str = "read") -> bridge.Answer:
        return await answer(permission_callback("p", kind), on_permission=rule)

    assert (await decide(permission.approve_all)).permission.HasField("approve_once")
    assert (await decide(permission.deny_all)).permission.reject.feedback == "Permission denied."
    assert (await decide(lambda r: r.approve_for_session())).permission.HasField("approve_for_session")
    assert (await decide(lambda r: r.reject(""))).permission.HasField("reject")
    assert (await decide(lambda r: r.user_not_available())).permission.HasField("user_not_available")
    assert (await decide(lambda r: None)).error.message == "The handler failed."
    rules = [
        permission.approve("read"),
        permission.approve_for_session("write"),
        permission.reject("url", feedback="no network"),
        lambda r: r.kind == "custom-tool" or r.abstain(),
    ]
    assert (await decide(rules, "read")).permission.HasField("approve_once")
    assert (await decide(rules, "write")).permission.HasField("approve_for_session")
    assert (await decide(rules, "url")).permission.reject.feedback == "no network"
    assert (await decide(rules, "custom_tool")).permission.HasField("approve_once")
    assert (await decide(rules, "shell")).HasField("abstain")


def test_permission_requests() -> None:
    message = permission_callback("p", "shell")
    message.permission.permission_request.shell.full_command_text = "ls"
    request = PermissionRequest.of(message)
    assert request.kind == "shell" and request.action.full_command_text == "ls"  # type: ignore[attr-defined]
    newer = permission_callback("p")
    newer.permission.permission_request.unrecognized = '{"kind": "teleport"}'
    assert PermissionRequest.of(newer).kind == "teleport" and PermissionRequest.of(newer).action is None


async def test_hooks() -> None:
    invocation = callback("hook", hook_type="preToolUse")
    invocation.hook.pre_tool_use.tool_name = "bash"
    context = cli.HookPreToolUseOutput(additional_context="x")
    given = await answer(invocation, hooks={"pre_tool_use": lambda hook: context})
    assert given.hook.pre_tool_use == context
    assert (await answer(invocation, hooks={"pre_tool_use": lambda hook: None})).HasField("hook")
    wrong = await answer(invocation, hooks={"pre_tool_use": lambda hook: cli.HookSessionEndOutput()})
    assert wrong.error.message == "The handler failed."
    every = Handlers({"on_hook": lambda hook: None}, {})
    assert every.takes(invocation, True) and not every.announced().hook_types
    assert (await every.answer(invocation)).hook == cli.HookOutput()


async def test_raw_requests() -> None:
    message = bridge.Callback(callback_id="c", session_id="s1", kind=bridge.CallbackKind.CALLBACK_KIND_RAW)
    message.raw.method, message.raw.params_json = "new.thing", '{"a": 1}'
    given = await answer(message, on_request={"new.thing": lambda request: {"got": request.params["a"]}})
    assert given.raw.result_json == '{"got": 1}'
    bad = await answer(message, on_request={"new.thing": lambda request: object()})
    assert bad.error.message == "The handler failed."


async def test_traces_reach_handlers_and_prompts() -> None:
    from opentelemetry import context, propagate, trace

    from copilot_grpc._prompts import make_prompt

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: list[str] = []

    @tool
    def plain(call: ToolCall) -> str:
        """Runs in a thread."""
        seen.append(f"{trace.get_current_span().get_span_context().trace_id:032x} {call.traceparent}")
        return ""

    message = tool_callback("c", "plain", traceparent=parent)
    await answer(message, tools=[plain])
    assert seen == [f"0af7651916cd43dd8448eb211c80319c {parent}"]
    assert not trace.get_current_span().get_span_context().is_valid
    token = context.attach(propagate.extract({"traceparent": parent}))
    try:
        assert (await make_prompt("Hello", (), False)).traceparent == parent
    finally:
        context.detach(token)


async def test_model_transport() -> None:
    bodies: list[bytes] = []

    async def transport(request: ModelRequest) -> ModelReply:
        if request.url.endswith("/fail"):
            raise RuntimeError("secret")
        bodies.append(await request.read())

        async def pieces() -> Any:
            yield b"data: "
            yield request.headers["x"][0].encode()

        return ModelReply(201, {"content-type": "text/event-stream"}, pieces())

    async with connected() as (fake, client):
        opening = asyncio.ensure_future(client.create_session(model_transport=transport))
        stream = await soon(fake.attaches.get())
        assert stream.request.create.runtime_profile.HasField("model_inference")
        await stream.start()
        await soon(opening)
        start = callback("model_request_start", request_id="r", method="POST", url="http://m/x")
        start.callback_id = "start"
        start.model_request_start.headers["x"].items.append("y")
        await stream.ask(start)
        assert (await stream.answer()).answer.HasField("model_request_start")
        await stream.done("start")
        for index, (data, binary, end) in enumerate((("he", False, False), ("bGxv", True, True))):
            chunk = callback("model_request_chunk", request_id="r", data=data, binary=binary, end=end)
            chunk.callback_id = f"chunk{index}"
            await stream.ask(chunk)
            frame = await stream.next()
            assert frame.answer.callback_id == chunk.callback_id
            await stream.done(chunk.callback_id)
        head = (await stream.next()).model_response.head
        assert head.status == 201 and list(head.headers["content-type"].items) == ["text/event-stream"]
        parts = [(await stream.next()).model_response.chunk for _ in range(3)]
        assert b"".join(part.binary for part in parts) == b"data: y" and parts[-1].end and bodies == [b"hello"]

        start.callback_id, start.model_request_start.request_id = "again", "q"
        start.model_request_start.url = "http://m/fail"
        await stream.ask(start)
        assert (await stream.answer()).answer.HasField("model_request_start")
        error = (await stream.next()).model_response.chunk.error
        assert error.message == "The model transport failed."
