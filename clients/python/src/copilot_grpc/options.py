"""Options of sessions and their participants, and the types of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Union

if TYPE_CHECKING:
    from .bridge import v1 as bridge
    from .cli import v1 as cli
    from .files import SessionFiles
    from .model import ModelTransport
    from .permission import Rule
    from .tools import Tool

Req = TypeVar("Req")
Ans = TypeVar("Ans")
Handler = Callable[[Req], Union[Ans, Awaitable[Ans]]]
"""Answers a callback: a coroutine function on the event loop, or a plain function in a thread.

The result is the message that answers the callback, or a short form. A handler that raises answers with an error, from
which the server makes the kind's safe default; only the text of a `HandlerError` leaves the program. `ABSTAIN` leaves
the callback to other participants.
"""


Lifetime = Literal["keep", "end_with_last_participant"]
InterruptedTurns = Literal["report", "continue"]


class Abstain:
    """The type of `ABSTAIN`."""

    def __repr__(self) -> str:
        return "ABSTAIN"


ABSTAIN = Abstain()
"""Result of a handler that leaves the callback to other participants."""


@dataclass(frozen=True)
class GitHubToken:
    """A token of a GitHub account. The CLI requests another one an hour before it expires."""

    token: str
    expires_in: float
    """Seconds."""


@dataclass(frozen=True)
class RawRequest:
    """A callback that is newer than this library.

    Attributes:
        session_id: The session.
        callback_id: Id of the callback, as in `Session.resolve`.
        method: The JSON-RPC method or the event type.
        params: Its parameters, decoded from JSON.
    """

    session_id: str
    callback_id: str
    method: str
    params: Any


class Hooks(TypedDict, total=False):
    """Functions that the agent calls at points of its work; they may observe, change or refuse an action.

    If several participants have a hook, each receives the changes of the previous one, and a refusal ends the chain.
    None has no effect. A failing `pre_tool_use` denies the tool; other failing hooks have no effect.
    """

    pre_tool_use: Handler[cli.HookPreToolUseInput, Union[cli.HookPreToolUseOutput, None]]
    """Before a tool runs: allow, deny, ask, or change its arguments."""
    pre_mcp_tool_call: Handler[cli.HookPreMcpToolCallInput, Union[cli.HookPreMcpToolCallOutput, None]]
    """Before a tool of an MCP server is called: changes the call's metadata."""
    post_tool_use: Handler[cli.HookPostToolUseInput, Union[cli.HookPostToolUseOutput, None]]
    """After a tool has succeeded: changes its result."""
    post_tool_use_failure: Handler[cli.HookPostToolUseFailureInput, Union[cli.HookPostToolUseFailureOutput, None]]
    """After a tool has failed: adds text for the model."""
    user_prompt_submitted: Handler[cli.HookUserPromptSubmittedInput, Union[cli.HookUserPromptSubmittedOutput, None]]
    """When a prompt arrives: changes it."""
    user_prompt_transformed: Handler[
        cli.HookUserPromptTransformedInput, Union[cli.HookUserPromptTransformedOutput, None]
    ]
    """When a prompt has the form that the model receives: changes that form."""
    session_start: Handler[cli.HookSessionStartInput, Union[cli.HookSessionStartOutput, None]]
    """When the session starts: adds text for the model."""
    session_end: Handler[cli.HookSessionEndInput, Union[cli.HookSessionEndOutput, None]]
    """When the session ends."""
    error_occurred: Handler[cli.HookErrorOccurredInput, Union[cli.HookErrorOccurredOutput, None]]
    """When something failed: retry, skip or abort."""
    agent_stop: Handler[cli.HookAgentStopInput, Union[cli.HookAgentStopOutput, None]]
    """When the agent considers its work done: whether it may stop."""
    subagent_start: Handler[cli.HookSubagentStartInput, None]
    """When a sub-agent starts."""
    subagent_stop: Handler[cli.HookSubagentStopInput, None]
    """When a sub-agent stops."""


class ParticipantOptions(TypedDict, total=False):
    """What this program does in a session."""

    tools: Sequence[Tool[..., Any]]
    """The tools of this participant."""
    max_concurrent_tools: int
    """Number of tool calls that run at once; default 16. Further calls wait."""
    name: str
    """Name for users and logs."""
    grace: float
    """Seconds for which the server keeps the participation after a broken connection: up to an hour, default 30."""
    commands: Sequence[cli.CommandDeclaration]
    """Slash commands that only this participant executes, with `on_command`."""
    canvases: Sequence[cli.CanvasDeclaration]
    """Canvases that this participant shows."""
    canvas_provider: cli.CanvasProviderIdentity
    extension_info: cli.ExtensionIdentity
    hooks: Hooks
    on_connection: Callable[[object], object]
    """Receives `Disconnected`, `Reconnected` and `ParticipantExpired`. Must not block."""

    on_permission: Union[Rule, Sequence[Rule]]
    """Decides about permission requests: a function, or rules that are asked in their order."""
    on_user_input: Handler[
        cli.CallbackUserInputServiceRequestRequest, Union[str, cli.CallbackUserInputServiceRequestResponse, Abstain]
    ]
    """Answers the agent's questions. Short form: the text."""
    on_elicitation: Handler[
        cli.ElicitationRequestedData,
        Union[Mapping[str, Union[str, float, bool, Sequence[str]]], cli.UIElicitationResponse, Abstain, None],
    ]
    """Fills in forms. Short forms: the form's content to accept, None to decline."""
    on_exit_plan_mode: Handler[
        cli.CallbackExitPlanModeServiceRequestRequest,
        Union[bool, str, cli.CallbackExitPlanModeServiceRequestResponse, Abstain],
    ]
    """Decides about plans. Short forms: True for the recommended action, False, or feedback for the agent."""
    on_auto_mode_switch: Handler[
        cli.CallbackAutoModeSwitchServiceRequestRequest,
        Union[bool, cli.CallbackAutoModeSwitchServiceRequestResponse, Abstain],
    ]
    """Decides whether another model is used when a rate limit is reached. Short form: True or False, once."""
    on_hook: Handler[cli.HookInvocation, Union[cli.HookOutput, Abstain, None]]
    """Receives the hooks that `hooks` does not have."""
    on_system_message_transform: Handler[
        cli.CallbackSystemMessageServiceTransformRequest,
        Union[Mapping[str, str], cli.CallbackSystemMessageServiceTransformResponse, Abstain],
    ]
    """Changes sections of the system message. Short form: the new text of sections."""
    on_command: Handler[cli.CommandExecuteData, Union[bridge.CommandAnswer, Abstain, None]]
    """Executes slash commands. None is success; a `HandlerError` is the command's error."""
    on_queued_command: Handler[cli.CommandQueuedData, Union[bool, cli.QueuedCommandResult, Abstain]]
    """Decides about queued commands. Short form: whether the command was handled."""
    on_sampling: Handler[cli.SamplingRequestedData, Union[Mapping[str, Any], bridge.SamplingAnswer, Abstain, None]]
    """Answers MCP's sampling/createMessage. Short forms: its result, or None to refuse."""
    on_mcp_oauth: Handler[cli.McpOauthRequiredData, Union[str, cli.McpOauthPendingRequestResponse, Abstain, None]]
    """Supplies an MCP server's token. Short forms: the token, or None for none."""
    on_mcp_headers: Handler[
        cli.McpHeadersRefreshRequiredData,
        Union[Mapping[str, str], cli.McpHeadersHandlePendingHeadersRefreshRequest, Abstain, None],
    ]
    """Supplies an MCP server's headers. Short forms: the headers, or None for none."""
    on_session_limits: Handler[
        cli.SessionLimitsExhaustedRequestedData, Union[cli.UISessionLimitsExhaustedResponse, Abstain]
    ]
    on_provider_token: Handler[
        cli.CallbackProviderTokenServiceGetTokenRequest,
        Union[str, cli.CallbackProviderTokenServiceGetTokenResponse, Abstain],
    ]
    """Supplies a model provider's bearer token before each request. Short form: the token."""
    on_github_token: Handler[
        cli.CallbackGitHubTokenServiceGetTokenRequest,
        Union[GitHubToken, cli.CallbackGitHubTokenServiceGetTokenResponse, Abstain, None],
    ]
    """Supplies GitHub tokens. None refuses: the session is not created, or the turn fails."""
    on_canvas_open: Handler[cli.CallbackCanvasServiceOpenRequest, cli.CallbackCanvasServiceOpenResponse]
    on_canvas_close: Handler[cli.CallbackCanvasServiceCloseRequest, Union[cli.CallbackCanvasServiceCloseResponse, None]]
    on_canvas_action: Handler[
        cli.CallbackCanvasActionServiceInvokeRequest, cli.CallbackCanvasActionServiceInvokeResponse
    ]
    on_skill_list: Handler[
        cli.InternalCallbackSkillProviderServiceListRequest, cli.InternalCallbackSkillProviderServiceListResponse
    ]
    on_skill_read: Handler[
        cli.InternalCallbackSkillProviderServiceReadRequest, cli.InternalCallbackSkillProviderServiceReadResponse
    ]
    on_workflow_execute: Handler[cli.CallbackWorkflowServiceExecuteRequest, cli.CallbackWorkflowServiceExecuteResponse]
    on_workflow_abort: Handler[
        cli.CallbackWorkflowServiceAbortRequest, Union[cli.CallbackWorkflowServiceAbortResponse, None]
    ]
    on_factory_execute: Handler[cli.CallbackFactoryServiceExecuteRequest, cli.CallbackFactoryServiceExecuteResponse]
    on_factory_abort: Handler[
        cli.CallbackFactoryServiceAbortRequest, Union[cli.CallbackFactoryServiceAbortResponse, None]
    ]
    on_task_cancel: Handler[cli.CallbackTasksServiceCancelRequest, cli.CallbackTasksServiceCancelResponse]
    on_installation_confirm: Handler[
        cli.CallbackInstallationsServiceConfirmRequest, cli.CallbackInstallationsServiceConfirmResponse
    ]
    on_extension_launch: Handler[
        cli.CallbackExtensionLaunchProviderServiceResolveRequest,
        cli.CallbackExtensionLaunchProviderServiceResolveResponse,
    ]
    on_ui_thread: Handler[cli.CallbackUiThreadServiceRunRequest, Union[cli.CallbackUiThreadServiceRunResponse, None]]
    session_files: SessionFiles
    """Stores the session's files in this program. The server's policy must allow it."""
    model_transport: ModelTransport
    """Answers the session's model requests in this program. The server's policy must allow it."""
    on_request: Mapping[str, Handler[RawRequest, Any]]
    """Answers callbacks that are newer than this library, by JSON-RPC method or event type, with a JSON value."""


class SessionOptions(ParticipantOptions, total=False):
    """Options of `Client.create_session`, `Client.resume_session` and `Client.open_session`.

    A resumed session keeps the values that are not given. Options that only a new session can have are ignored for a
    session that exists, and options of a resume for a new one.
    """

    config: cli.SessionConfig
    """Model, provider, instructions, directories and so on. The shortcuts below override its fields."""
    clear: Sequence[str]
    """Fields of `config` to clear, such as `["mcp_servers"]`: a list or map becomes empty, any other field is removed.
    An empty list or map in `config` changes nothing. Fields with a value in `config` are set. A session that is created
    loses the values that the server gives to new sessions."""
    model: str
    working_directory: str
    streaming: bool
    """Sends the model's text as it arrives, in pieces, for `Turn.deltas`; default: `config.streaming`, else True."""
    provider_ref: str
    """Name of a model provider in the server's configuration, instead of `config.provider`."""
    lifetime: Lifetime
    """When the session ends: with `Session.disconnect` or `Session.delete` ("keep", the default of a new session), or
    also when its last participant leaves ("end_with_last_participant")."""
    interrupted_turns: InterruptedTurns
    """The server's reaction to a turn that ends with its CLI process: it reports that ("report", the default of a new
    session), or it also tells the agent to continue, at most three times in a row ("continue")."""
    session_handlers: bridge.Handlers
    """Callbacks that wait for `Session.resolve` even if no participant handles them."""
    callback_timeout: float
    """Seconds for which callbacks wait for an answer."""
    runtime_profile: bridge.RuntimeProfile
    """Profile of the CLI process."""
    request_id: str
    """Makes the call idempotent across restarts of this program; default: a random id."""

    labels: Mapping[str, str]
    """Of a new session: labels by which `Client.list_sessions` and other filters find it; `Session.update_labels`
    changes them later."""
    node_labels: Mapping[str, str]
    """Of a new session: labels that its server must have, as in a cluster whose replicas have different directories."""
    cloud: cli.CloudSessionConfig
    """Of a new session: its repository in GitHub's cloud."""

    continue_pending_work: bool
    """Of a resume: keeps the callbacks that were pending when the session was unloaded."""
    resume: cli.SessionResumeExtras
    """Of a resume: further options."""
