"""A participant's tools and handlers, and the answers that they give."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import permission
from ._answers import answer_error, answer_hook, answer_of, answer_raw
from ._run import call_handler, is_traced, trace
from .bridge import v1 as bridge
from .errors import HandlerError, ToolError
from .options import Abstain, ParticipantOptions, RawRequest
from .tools import Tool, ToolCall, ToolResult, tool_answer

_log = logging.getLogger("copilot_grpc")
_KIND = "CALLBACK_KIND_"
_OTHER = {"on_permission", "on_request", "on_connection"}
# An answer that exceeds the server's limit for messages, 16 MiB by default, would end the stream.
MAX_ANSWER = 15 << 20


class Handlers:
    """The functions of a participant, by the callbacks that they answer."""

    def __init__(self, options: ParticipantOptions, more: Mapping[str, Callable[..., Any]]) -> None:
        """`more` are handlers by kind that other options stand for, such as session_files."""
        self.tools = by_name(options.get("tools", ()))
        rules = options.get("on_permission")
        self._permission = permission.first_of(rules) if isinstance(rules, Sequence) else rules
        self._raw = dict(options.get("on_request", {}))
        self._hooks: dict[str, Any] = dict(options.get("hooks", {}))
        self._by_kind: dict[str, Callable[..., Any]] = {
            name.removeprefix("on_"): function
            for name, function in options.items()
            if name.startswith("on_") and name not in _OTHER and callable(function)
        }
        self._by_kind.update(more)

    def declared_tools(self, owned_by_session: bool) -> list[Any]:
        """The definitions of the participant's tools, or of the session's, in a stable order."""
        return [
            tool.definition() for _, tool in sorted(self.tools.items()) if tool.owned_by_session == owned_by_session
        ]

    def announced(self) -> bridge.Handlers:
        """The handlers for the start frame."""
        kinds = {*self._by_kind, *(("hook",) if self._hooks else ())}
        every_hook = "hook" in self._by_kind
        return bridge.Handlers(
            permission=self._permission is not None,
            kinds=sorted(bridge.CallbackKind.Value(_KIND + kind.upper()) for kind in kinds),
            hook_types=[] if every_hook else sorted(map(_camel, self._hooks)),
            methods=sorted(self._raw),
        )

    def takes(self, callback: bridge.Callback, offered: bool) -> bool:
        """Whether this participant answers a callback. `offered`: the server asks this participant."""
        match callback.WhichOneof("request"):
            case "tool_call":
                tool = self.tools.get(callback.tool_call.tool_name)
                if tool is None:
                    return offered  # the tool was just removed: `answer` abstains
                return tool.function is not None and (offered or tool.owned_by_session)
            case "permission":
                return offered and self._permission is not None
            case "raw":
                return offered and callback.raw.method in self._raw
            case "hook":
                return offered and (callback.hook.WhichOneof("data") in self._hooks or "hook" in self._by_kind)
            case kind:
                return offered and kind in self._by_kind

    async def answer(self, callback: bridge.Callback) -> bridge.Answer:
        """Answers a callback. Only the task's cancellation raises."""
        try:
            if not callback.traceparent or not is_traced():
                answer = await (self._answer_tool if callback.HasField("tool_call") else self._dispatch)(callback)
            else:
                with trace(callback.traceparent, callback.tracestate):
                    answer = await self._dispatch(callback)
        except Exception as error:
            log_failure(callback, error)
            # Only the caller of a slash command reads a text that the program did not mean for others.
            is_told = isinstance(error, HandlerError) or callback.HasField("command")
            return answer_error(str(error) if is_told else "The handler failed.")
        size = answer.ByteSize()
        if size <= MAX_ANSWER:
            return answer
        problem = f"the answer has {size} bytes, more than {MAX_ANSWER}"
        log_failure(callback, ValueError(problem))
        return answer_error(problem)

    async def _dispatch(self, callback: bridge.Callback) -> bridge.Answer:
        match callback.WhichOneof("request"):
            case "tool_call":
                return await self._answer_tool(callback)
            case "permission":
                request = permission.PermissionRequest.of(callback)
                decision = permission.as_message(request, await call_handler(_given(self._permission), request))
                return abstain() if decision is None else bridge.Answer(permission=decision)
            case "raw":
                return await self._answer_raw(callback)
            case "hook":
                return await self._answer_hook(callback)
            case str(kind):
                message = getattr(callback, kind)
                return answer_of(kind, message, await call_handler(self._by_kind[kind], message))
        raise HandlerError("the request has a form that this library does not know")

    async def _answer_tool(self, callback: bridge.Callback) -> bridge.Answer:
        request = callback.tool_call
        tool = self.tools.get(request.tool_name)
        if tool is None or tool.function is None:
            return abstain()
        try:
            arguments = tool.arguments(request.arguments_json, _tool_call(callback) if tool.takes_call else None)
        except ToolError as error:  # the model's mistake, not the program's
            return _failed(str(error), error)
        try:
            if tool.is_coroutine:
                result = await tool.function(**arguments)
            else:
                result = await call_handler(tool.function, **arguments)
        except Exception as error:
            log_failure(callback, error)
            return _failed(str(error) if isinstance(error, ToolError) else "The tool failed.", error)
        if isinstance(result, Abstain):
            return abstain()
        try:
            if not isinstance(result, str):
                return bridge.Answer(tool=tool_answer(result))
            answer = bridge.Answer()
            answer.tool.text = result  # a ToolAnswer would be copied
            return answer
        except Exception as error:
            log_failure(callback, error)
            return _failed("The tool ran, but its result cannot be encoded as JSON.", error)

    async def _answer_raw(self, callback: bridge.Callback) -> bridge.Answer:
        raw = callback.raw
        params = json.loads(raw.params_json) if raw.params_json else None
        request = RawRequest(callback.session_id, callback.callback_id, raw.method, params)
        result = await call_handler(self._raw[raw.method], request)
        return abstain() if isinstance(result, Abstain) else answer_raw(result)

    async def _answer_hook(self, callback: bridge.Callback) -> bridge.Answer:
        field = callback.hook.WhichOneof("data")
        if field in self._hooks:
            return answer_hook(field, await call_handler(self._hooks[field], getattr(callback.hook, field)))
        return answer_of("hook", callback.hook, await call_handler(self._by_kind["hook"], callback.hook))


def by_name(tools: Sequence[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Tools by their names. Raises ValueError if two have the same."""
    found: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{tool!r} is no tool: decorate the function with @tool")
        if tool.name in found:
            raise ValueError(f"two tools have the name {tool.name!r}")
        found[tool.name] = tool
    return found


def abstain() -> bridge.Answer:
    """Leaves a callback to other participants."""
    return bridge.Answer(abstain=bridge.Abstain())


def _failed(text: str, error: Exception) -> bridge.Answer:
    """The answer of a tool that failed, with a text for the model, and the error for the session's record."""
    return bridge.Answer(tool=tool_answer(ToolResult(text=text, type="failure", error=str(error) or repr(error))))


def _tool_call(callback: bridge.Callback) -> ToolCall:
    request = callback.tool_call
    return ToolCall(
        callback.session_id, callback.callback_id, request.tool_call_id, request.tool_name,
        request.working_directory, callback.traceparent, callback.tracestate,
    )  # fmt: skip


def _given(function: Any) -> Any:
    if function is None:
        raise HandlerError("this participant decides about no permissions")
    return function


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def log_failure(callback: bridge.Callback, error: Exception) -> None:
    """Logs that a function of the program failed, in words that are enough without the record's attributes. The
    exceptions that are answers to the model or the server have no traceback."""
    about = {"session_id": callback.session_id, "callback_id": callback.callback_id}
    _log.warning(
        "%s failed: %s: %s (session %s, callback %s)",
        _function(callback), type(error).__name__, error, callback.session_id, callback.callback_id,
        exc_info=None if isinstance(error, (ToolError, HandlerError)) else error, extra=about,
    )  # fmt: skip


def _function(callback: bridge.Callback) -> str:
    """The function that answers a callback, for the log."""
    match callback.WhichOneof("request"):
        case "tool_call":
            return f"tool {callback.tool_call.tool_name}"
        case "command":
            return f"on_command for {callback.command.command_name}"
        case "hook":
            return f"hook {callback.hook.WhichOneof('data')}"
        case "raw":
            return f"on_request for {callback.raw.method}"
        case kind:
            return "session_files" if str(kind).startswith("fs_") else f"on_{kind}"
