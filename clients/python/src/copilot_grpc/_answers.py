"""Answers to callbacks, from what handlers return."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .bridge import v1 as bridge
from .cli import v1 as cli
from .options import Abstain, GitHubToken


def answer_of(kind: str, request: Any, result: Any) -> bridge.Answer:
    """The answer to a callback. Raises TypeError if the result is neither the kind's message nor a short form.

    Args:
        kind: Field of the request in Callback, which is also the field of its answer in Answer.
        request: The request.
        result: The handler's result.
    """
    if isinstance(result, Abstain):
        return bridge.Answer(abstain=bridge.Abstain())
    short = _SHORT.get(kind)
    if short is not None:
        result = short(request, result)
    elif result is None and kind in _EMPTY:
        result = _message_class(kind)()
    want = _message_class(kind)
    if not isinstance(result, want):
        raise TypeError(f"the handler of {kind} returned {result!r}: want {want.__name__}")
    return bridge.Answer(**{kind: result})


def answer_raw(value: Any) -> bridge.Answer:
    """The answer to a callback without a type."""
    return bridge.Answer(raw=bridge.RawAnswer(result_json=json.dumps(value, allow_nan=False)))


def answer_error(text: str) -> bridge.Answer:
    """An error in place of an answer."""
    return bridge.Answer(error=bridge.AnswerError(message=text))


def answer_hook(field: str, result: Any) -> bridge.Answer:
    """The answer to a hook of one type."""
    if result is None:
        return bridge.Answer(hook=cli.HookOutput())
    if isinstance(result, Abstain):
        return bridge.Answer(abstain=bridge.Abstain())
    try:
        return bridge.Answer(hook=cli.HookOutput(**{field: result}))
    except (TypeError, ValueError):
        raise TypeError(f"the hook {field} returned {result!r}: want its output message or None") from None


def _message_class(kind: str) -> type[Any]:
    field = bridge.Answer.DESCRIPTOR.fields_by_name[kind]
    assert field.message_type is not None
    found: type[Any] = type(getattr(bridge.Answer(), kind))
    return found


_EMPTY = {"canvas_close", "workflow_abort", "factory_abort", "ui_thread", "model_request_start", "model_request_chunk"}


def _user_input(request: Any, result: Any) -> Any:
    if isinstance(result, str):
        freeform = result not in request.choices
        return cli.CallbackUserInputServiceRequestResponse(answer=result, was_freeform=freeform)
    return result


def _elicitation(request: Any, result: Any) -> Any:
    action = cli.UIElicitationResponseAction
    if result is None:
        return cli.UIElicitationResponse(action=action.UI_ELICITATION_RESPONSE_ACTION_DECLINE)
    if isinstance(result, Mapping):
        content = {name: _form_value(value) for name, value in result.items()}
        return cli.UIElicitationResponse(action=action.UI_ELICITATION_RESPONSE_ACTION_ACCEPT, content=content)
    return result


def _form_value(value: Any) -> cli.UIElicitationFieldValue:
    if isinstance(value, bool):
        return cli.UIElicitationFieldValue(bool_value=value)
    if isinstance(value, (int, float)):
        return cli.UIElicitationFieldValue(double_value=value)
    if isinstance(value, str):
        return cli.UIElicitationFieldValue(string_value=value)
    return cli.UIElicitationFieldValue(list=cli.StringList(items=list(value)))


def _exit_plan_mode(request: Any, result: Any) -> Any:
    response = cli.CallbackExitPlanModeServiceRequestResponse
    if result is True:
        return response(approved=True, selected_action=request.recommended_action)
    if result is False:
        return response(approved=False)
    if isinstance(result, str):
        return response(approved=False, feedback=result)
    return result


def _auto_mode_switch(request: Any, result: Any) -> Any:
    if isinstance(result, bool):
        values = cli.CallbackAutoModeSwitchServiceRequestResponseResponse
        name = "CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_" + ("YES" if result else "NO")
        return cli.CallbackAutoModeSwitchServiceRequestResponse(response=values.Value(name))
    return result


def _hook(request: Any, result: Any) -> Any:
    return cli.HookOutput() if result is None else result


def _transform(request: Any, result: Any) -> Any:
    if not isinstance(result, Mapping):
        return result
    sections = dict(request.sections)
    sections.update({name: cli.SystemMessageSectionText(content=text) for name, text in result.items()})
    return cli.CallbackSystemMessageServiceTransformResponse(sections=sections)


def _command(request: Any, result: Any) -> Any:
    return bridge.CommandAnswer() if result is None else result


def _queued_command(request: Any, result: Any) -> Any:
    if isinstance(result, bool):
        answer = cli.QueuedCommandResult()
        getattr(answer, "true" if result else "false").SetInParent()
        return answer
    return result


def _sampling(request: Any, result: Any) -> Any:
    if result is None:
        return bridge.SamplingAnswer()
    if isinstance(result, Mapping):
        return bridge.SamplingAnswer(response_json=json.dumps(result, allow_nan=False))
    return result


def _mcp_oauth(request: Any, result: Any) -> Any:
    response = cli.McpOauthPendingRequestResponse
    if result is None:
        return response(cancelled=cli.McpOauthPendingRequestResponseCancelled())
    if isinstance(result, str):
        return response(token=cli.McpOauthPendingRequestResponseToken(access_token=result))
    return result


def _mcp_headers(request: Any, result: Any) -> Any:
    response = cli.McpHeadersHandlePendingHeadersRefreshRequest
    if result is None:
        return response(none=cli.McpHeadersHandlePendingHeadersRefreshRequestNone())
    if isinstance(result, Mapping):
        return response(headers=cli.McpHeadersHandlePendingHeadersRefreshRequestHeaders(headers=result))
    return result


def _provider_token(request: Any, result: Any) -> Any:
    if isinstance(result, str):
        return cli.CallbackProviderTokenServiceGetTokenResponse(token=result)
    return result


def _github_token(request: Any, result: Any) -> Any:
    response = cli.CallbackGitHubTokenServiceGetTokenResponse
    if result is None:
        return response(cancelled=cli.CallbackGitHubTokenServiceGetTokenResponseCancelled())
    if isinstance(result, GitHubToken):
        token = cli.CallbackGitHubTokenServiceGetTokenResponseToken(
            access_token=result.token, expires_in=int(result.expires_in)
        )
        return response(token=token)
    return result


_SHORT: dict[str, Callable[[Any, Any], Any]] = {
    "user_input": _user_input,
    "elicitation": _elicitation,
    "exit_plan_mode": _exit_plan_mode,
    "auto_mode_switch": _auto_mode_switch,
    "hook": _hook,
    "system_message_transform": _transform,
    "command": _command,
    "queued_command": _queued_command,
    "sampling": _sampling,
    "mcp_oauth": _mcp_oauth,
    "mcp_headers": _mcp_headers,
    "provider_token": _provider_token,
    "github_token": _github_token,
}
