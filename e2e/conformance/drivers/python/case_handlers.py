"""The functions of a case's program."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from copilot.conformance.v1 import conformance_pb2 as pb

import copilot_grpc
from copilot_grpc import ABSTAIN, GitHubToken, PermissionRequest, RawRequest, Tool, ToolError, ToolResult, tool
from copilot_grpc.cli import v1 as cli

if TYPE_CHECKING:
    from case_runner import CaseRunner


def tools(runner: CaseRunner, session: str, messages: Iterable[pb.Tool]) -> list[Tool[..., Any]]:
    return [make_tool(runner, session, message) for message in messages]


def make_tool(runner: CaseRunner, session: str, message: pb.Tool) -> Tool[..., Any]:
    options = {"skip_permission": message.skip_permission, "owned_by_session": message.owned_by_session}
    if message.declared_only:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        return Tool(None, name=message.name, description="Tells about a city.", parameters=schema, **options)

    @tool(message.name, description="Tells about a city.", **options)
    async def function(city: str, days: int | None = None) -> Any:
        arguments = {"city": city} if days is None else {"city": city, "days": days}
        text = json.dumps(arguments, separators=(",", ":"))
        observation = runner.observe(session, "tool", message.name, text)
        await runner.gate(observation, message.behaviour.gate)
        return behave(message.behaviour, city)

    return function


def behave(behaviour: pb.Behaviour, city: str) -> Any:
    match behaviour.WhichOneof("result"):
        case "text":
            return behaviour.text
        case "template":
            return behaviour.template.replace("{city}", city)
        case "json":
            return json.loads(behaviour.json)
        case "failure":
            raise ToolError(behaviour.failure)
        case "rejected":
            return ToolResult.rejected(behaviour.rejected)
        case "binary":
            binary = behaviour.binary
            return ToolResult.binary(binary.data, mime_type=binary.mime_type, text=binary.text)
        case "exception":
            raise RuntimeError(behaviour.exception)
        case "abstain":
            return ABSTAIN
        case "unencodable":
            return object()
    return None


def options(runner: CaseRunner, step: pb.Open) -> dict[str, Any]:
    o: dict[str, Any] = {"tools": tools(runner, step.session, step.tools), **handlers(runner, step)}

    def changed(change: object) -> None:
        names = {"Disconnected": "broken", "Reconnected": "restored", "ParticipantExpired": "expired"}
        runner.observe(step.session, "connection", names.get(type(change).__name__, "runtime-restarted"))

    o["on_connection"] = changed
    if step.commands:
        o["commands"] = [cli.CommandDeclaration(name=name, description="a command") for name in step.commands]
    if step.grace_ms:
        o["grace"] = step.grace_ms / 1000
    if step.how == pb.Open.JOIN:
        return o
    if step.HasField("streaming"):
        o["streaming"] = step.streaming
    if step.labels:
        o["labels"] = dict(step.labels)
    if step.clear:
        o["clear"] = list(step.clear)
    if step.callback_timeout_ms:
        o["callback_timeout"] = step.callback_timeout_ms / 1000
    if step.continue_pending_work:
        o["continue_pending_work"] = True
    if step.end_with_last_participant:
        o["lifetime"] = "end_with_last_participant"
    if step.continue_interrupted_turns:
        o["interrupted_turns"] = "continue"
    if step.HasField("provider"):
        provider = cli.ProviderConfig(
            provider_type=cli.ProviderConfigType.PROVIDER_CONFIG_TYPE_OPENAI,
            wire_api=cli.ProviderConfigWireApi.PROVIDER_CONFIG_WIRE_API_COMPLETIONS,
            base_url=step.provider.base_url,
        )
        if step.provider.token_by_callback:
            provider.has_bearer_token_provider = True
        else:
            provider.api_key = "offline"
        o["model"], o["working_directory"] = step.provider.model, step.working_directory
        o["config"] = cli.SessionConfig(skip_custom_instructions=True, provider=provider)
    return o


def handlers(runner: CaseRunner, step: pb.Open) -> dict[str, Any]:
    h, session, o = step.handlers, step.session, {}

    async def answer(kind: str, name: str, a: pb.Answer) -> str:
        await runner.gate(runner.observe(session, kind, name), a.gate)
        if a.exception:
            raise RuntimeError(a.text)
        return a.text

    async def permission(request: PermissionRequest) -> Any:
        await runner.gate(runner.observe(session, "permission", request.kind), h.permission.gate)
        return decide(h.permission, request)

    async def elicitation(request: Any) -> Any:
        runner.observe(session, "elicitation", request.message)
        if h.elicitation.unencodable:
            return {"name": object()}
        if h.elicitation.action == "accept":
            return dict(h.elicitation.content)
        actions = cli.UIElicitationResponseAction
        name = f"UI_ELICITATION_RESPONSE_ACTION_{h.elicitation.action.upper()}"
        return cli.UIElicitationResponse(action=actions.Value(name))

    async def plan(request: Any) -> bool:
        runner.observe(session, "exit_plan_mode", request.summary)
        return h.exit_plan_mode.approved

    async def switch(request: Any) -> Any:
        text = await answer("auto_mode_switch", "", h.auto_mode_switch)
        return {"yes": True, "no": False}.get(text, always())

    async def command(request: Any) -> None:
        await answer("command", request.command_name, h.command)

    async def github_token(request: Any) -> GitHubToken:
        return GitHubToken(await answer("github_token", "", h.github_token), expires_in=3600)

    async def raw(request: RawRequest) -> Any:
        runner.observe(session, "raw", request.method, json.dumps(request.params))
        return float("nan") if h.raw.unencodable else json.loads(h.raw.result_json)

    every = {
        "permission": permission,
        "user_input": lambda request: answer("user_input", request.question, h.user_input),
        "elicitation": elicitation,
        "exit_plan_mode": plan,
        "auto_mode_switch": switch,
        "command": command,
        "provider_token": lambda request: answer("provider_token", "", h.provider_token),
        "github_token": github_token,
    }
    for name, function in every.items():
        if h.HasField(name):
            o[f"on_{name}"] = coroutine(function)
    if h.HasField("raw"):
        o["on_request"] = {h.raw.method: raw}
    return {**o, "hooks": hooks(runner, session, h, answer)}


def coroutine(function: Any) -> Any:
    """The library runs functions that are no coroutine functions in threads; these use the event loop."""

    async def call(request: Any) -> Any:
        return await function(request)

    return call


def hooks(runner: CaseRunner, session: str, h: pb.Handlers, answer: Any) -> copilot_grpc.Hooks:
    async def pre_tool_use(request: Any) -> Any:
        decision = await answer("hook", f"preToolUse {request.tool_name}", h.pre_tool_use)
        if h.pre_tool_use.unencodable:
            return object()
        if not decision:
            return None
        value = cli.HookPermissionDecision.Value(f"HOOK_PERMISSION_DECISION_{decision.upper()}")
        return cli.HookPreToolUseOutput(permission_decision=value)

    async def post_tool_use(request: Any) -> None:
        runner.observe(session, "hook", f"postToolUse {request.tool_name}")

    async def user_prompt_submitted(request: Any) -> None:
        runner.observe(session, "hook", f"userPromptSubmitted {request.prompt}")

    o: copilot_grpc.Hooks = {}
    if h.HasField("pre_tool_use"):
        o["pre_tool_use"] = pre_tool_use
    if h.post_tool_use:
        o["post_tool_use"] = post_tool_use
    if h.user_prompt_submitted:
        o["user_prompt_submitted"] = user_prompt_submitted
    return o


def always() -> cli.CallbackAutoModeSwitchServiceRequestResponse:
    values = cli.CallbackAutoModeSwitchServiceRequestResponseResponse
    name = "CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_YES_ALWAYS"
    return cli.CallbackAutoModeSwitchServiceRequestResponse(response=values.Value(name))


def decide(message: pb.Permission, request: PermissionRequest) -> Any:
    rule = next((r for r in message.rules if r.kind in ("", request.kind)), None)
    match rule.decision if rule else "":
        case "approve":
            return request.approve()
        case "approve-for-session":
            return request.approve_for_session()
        case "reject":
            return request.reject(rule.feedback)
        case "exception":
            raise RuntimeError(rule.feedback)
    return request.abstain()
