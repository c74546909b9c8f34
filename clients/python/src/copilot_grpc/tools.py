"""Tools: functions of this program that the agent can call."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import typing_extensions

from . import _schema
from ._schema import Mismatch
from .errors import ToolError

if TYPE_CHECKING:
    from .bridge import v1 as bridge
    from .cli import v1 as cli

P = ParamSpec("P")
R = TypeVar("R")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True)
class ToolCall:
    """The call that a tool executes. A parameter of this type receives it and is not part of the schema.

    Attributes:
        session_id: The session.
        callback_id: Id of the callback, as in `Session.resolve`.
        tool_call_id: The model's id of the call.
        tool_name: The tool.
        working_directory: The session's directory on the CLI's machine; empty if unknown.
        traceparent: W3C trace context of the call; empty if there is none.
        tracestate: W3C trace state of the same context.
    """

    session_id: str
    callback_id: str
    tool_call_id: str
    tool_name: str
    working_directory: str = ""
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True)
class ToolResult:
    """A complete result of a tool. The class methods make the usual ones.

    Attributes:
        text: Text for the model.
        type: "success", "failure", "rejected" or "denied".
        error: Error for the record.
        binaries: Images and other files.
        session_log: Text for the session's log.
        message: The complete result as a message; overrides everything else.
    """

    text: str = ""
    type: str = "success"
    error: str | None = None
    binaries: tuple[Binary, ...] = ()
    session_log: str | None = None
    message: cli.ExternalToolTextResultForLlm | None = None

    @classmethod
    def failure(cls, text: str) -> ToolResult:
        """The tool failed; the model reads the text."""
        return cls(text=text, type="failure", error=text)

    @classmethod
    def rejected(cls, text: str = "The user rejected this call.") -> ToolResult:
        """The call was refused; the model reads the text."""
        return cls(text=text, type="rejected")

    @classmethod
    def denied(cls, text: str) -> ToolResult:
        """The action of the tool is not permitted; the model reads the text."""
        return cls(text=text, type="denied")

    @classmethod
    def binary(cls, data: bytes, *, mime_type: str, text: str = "", description: str = "") -> ToolResult:
        """An image or another file, with a text for the model."""
        return cls(text=text, binaries=(Binary(data, mime_type, description),))

    def answer(self) -> cli.ExternalToolTextResultForLlm:
        """The result as a message."""
        from .cli import v1 as cli

        if self.message is not None:
            return self.message
        result = cli.ExternalToolTextResultForLlm(text_result_for_llm=self.text, result_type=self.type)
        if self.error is not None:
            result.error = self.error
        if self.session_log is not None:
            result.session_log = self.session_log
        result.binary_results_for_llm.extend(binary.answer() for binary in self.binaries)
        return result


@dataclass(frozen=True)
class Binary:
    """A file in a tool's result."""

    data: bytes
    mime_type: str
    description: str = ""

    def answer(self) -> cli.ExternalToolTextResultForLlmBinaryResultsForLlm:
        """The file as a message."""
        from .cli import v1 as cli

        kind = cli.ExternalToolTextResultForLlmBinaryResultsForLlmType
        prefix = "EXTERNAL_TOOL_TEXT_RESULT_FOR_LLM_BINARY_RESULTS_FOR_LLM_TYPE_"
        image = self.mime_type.startswith("image/")
        message = cli.ExternalToolTextResultForLlmBinaryResultsForLlm(
            binary_type=kind.Value(prefix + ("IMAGE" if image else "RESOURCE")),
            data=self.data,
            mime_type=self.mime_type,
        )
        if self.description:
            message.description = self.description
        return message


class Tool(Generic[P, R]):
    """A function that the agent can call; `tool` makes it. The tool itself can be called like the function.

    Attributes:
        name: Name for the agent; matches ^[a-zA-Z0-9_-]+$.
        description: Description for the agent.
        parameters: JSON Schema of the arguments.
        function: The function; None for a tool whose calls are answered with `Session.resolve`.
        skip_permission: The agent calls the tool without a permission request.
        overrides_built_in: The tool replaces a built-in tool of the same name.
        owned_by_session: The tool stays with the session when the participant leaves.
        is_coroutine: The tool runs on the event loop; other tools run in a thread.
    """

    def __init__(
        self,
        function: Callable[P, R] | None,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any] | None = None,
        skip_permission: bool = False,
        overrides_built_in: bool = False,
        owned_by_session: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"tool name {name!r} does not match ^[a-zA-Z0-9_-]+$")
        self.function = function
        self.name, self.description = name, description
        self.skip_permission, self.overrides_built_in = skip_permission, overrides_built_in
        self.owned_by_session = owned_by_session
        self._extra = dict(extra or {})
        self.is_coroutine = inspect.iscoroutinefunction(function)
        self._decode: Callable[[Any], dict[str, Any]] | None = None
        self._call_parameter = ""
        self.parameters = dict(parameters) if parameters is not None else self._derive()
        if function is not None:
            functools.update_wrapper(self, function)

    def _derive(self) -> dict[str, Any]:
        if self.function is None:
            return {"type": "object", "properties": {}}
        try:
            hints = typing_extensions.get_type_hints(self.function)
            self._call_parameter = next((n for n, hint in hints.items() if hint is ToolCall and n != "return"), "")
            shape = _schema.parameters_of(self.function, frozenset({self._call_parameter}))
        except TypeError as error:
            raise TypeError(f"tool {self.name!r}: {error}") from None
        self._decode = lambda value: shape.decode(value, "")
        return shape.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # noqa: D102
        if self.function is None:
            raise TypeError(f"tool {self.name!r} has no function")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def takes_call(self) -> bool:
        """Whether the function has a parameter for the `ToolCall`."""
        return bool(self._call_parameter)

    def arguments(self, arguments_json: str, call: ToolCall | None = None) -> dict[str, Any]:
        """The keyword arguments of a call. Raises ToolError, with words for the model, if they do not fit.

        Args:
            arguments_json: The arguments as JSON.
            call: The call, for a function that takes it.
        """
        try:
            value = json.loads(arguments_json) if arguments_json else {}
        except ValueError as error:
            raise ToolError(f"The arguments do not fit: they are not valid JSON: {error}.") from None
        if self._decode is None:
            return {"arguments": value}
        try:
            decoded = self._decode(value)
        except Mismatch as problem:
            raise ToolError(f"The arguments do not fit: {problem}.") from None
        if self._call_parameter:
            decoded[self._call_parameter] = call
        return decoded

    def definition(self) -> cli.ToolDefinition:
        """The tool as a message."""
        from .cli import v1 as cli

        message = cli.ToolDefinition(name=self.name, description=self.description, **self._extra)
        message.parameters_json = json.dumps(self.parameters)
        if self.skip_permission:
            message.skip_permission = True
        if self.overrides_built_in:
            message.overrides_built_in_tool = True
        return message


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    name: str | None = None,
    /,
    *,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    skip_permission: bool = False,
    overrides_built_in: bool = False,
    owned_by_session: bool = False,
    **extra: Any,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(subject: Any = None, /, *, description: str | None = None, **options: Any) -> Any:
    """Makes a tool of a function, as a decorator.

    The name is the function's, the description its docstring up to the first section, and the JSON Schema follows from
    the type hints. The model reads the result: text as it is, anything else as JSON, None as "Done.", `ToolResult` as
    it says. The text of a `ToolError` reaches the model; other exceptions are failures without details.

    Args:
        subject: The function, or a name for the tool.
        description: Description for the model, instead of the docstring.
        parameters: JSON Schema of the arguments. The function then receives the object as its argument `arguments`.
        skip_permission: Lets the agent call the tool without a permission request.
        overrides_built_in: Replaces a built-in tool of the same name.
        owned_by_session: Leaves the tool with the session when the participant leaves.
        extra: Further fields of copilot.cli.v1.ToolDefinition.

    Raises:
        TypeError: A parameter has a type without a JSON Schema.
        ValueError: The name is invalid.
    """

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        name = subject if isinstance(subject, str) else function.__name__
        text = _schema.docstring_summary(function) if description is None else description
        known = {field: options[field] for field in _OPTIONS if field in options}
        extra = {field: value for field, value in options.items() if field not in _OPTIONS}
        return Tool(function, name=name, description=text or name, extra=extra, **known)

    return decorate(subject) if callable(subject) else decorate


_OPTIONS = ("parameters", "skip_permission", "overrides_built_in", "owned_by_session")


def tool_answer(result: object) -> bridge.ToolAnswer:
    """What a tool returned, as an answer. Raises TypeError or ValueError if JSON cannot hold it."""
    from .bridge import v1 as bridge

    if isinstance(result, str):
        return bridge.ToolAnswer(text=result)
    if result is None:
        return bridge.ToolAnswer(text="Done.")
    if isinstance(result, ToolResult):
        return bridge.ToolAnswer(result=result.answer())
    return bridge.ToolAnswer(text=json.dumps(result, default=_plain, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> object:
    """A value that json does not know, as one that it knows."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"the result has a {type(value).__name__}, which JSON cannot hold")
