//! Kinds of callbacks: what the CLI asks, and the type of each answer.
//!
//! The handlers of [`SessionOptions`](crate::SessionOptions) name these types; programs need them only to write
//! functions that are generic over kinds.

use std::collections::HashMap;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::CallbackKind;
use crate::bridge::v1::answer::Answer;
use crate::bridge::v1::callback::Request;
use crate::cli::v1 as cli;
use crate::cli::v1::hook_invocation::Data as HookData;
use crate::cli::v1::hook_output::Variant as HookVariant;
use crate::error::HandlerError;
use crate::handlers::Reply;
use crate::permission::PermissionRequest;

mod sealed {
    pub trait Sealed {}
}

/// A kind of callback.
pub trait Kind: sealed::Sealed + 'static {
    /// The request that its handler receives.
    type Request: Send;
    /// The message that answers it.
    type Answer: Send;
    /// The part of the request that short forms of the answer depend on.
    type Context: Send + Sync;
    #[doc(hidden)]
    const KIND: CallbackKind;
    #[doc(hidden)]
    const HOOK: Option<&'static str> = None;
    #[doc(hidden)]
    fn request(callback: bridge::Callback) -> Option<Self::Request>;
    #[doc(hidden)]
    fn context(request: &Self::Request) -> Self::Context;
    #[doc(hidden)]
    fn answer(answer: Self::Answer) -> Answer;
}

/// Declares kinds: `Kind: request => answer`, with the part of the request that short forms need.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $request:ident => $($module:ident)::+ $(, $context:ty = $part:expr)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $kind {}

            impl sealed::Sealed for $kind {}

            impl Kind for $kind {
                type Request = cli::$request;
                type Answer = $($module)::+;
                type Context = kinds!(@type $($context)?);
                const KIND: CallbackKind = CallbackKind::$kind;

                fn request(callback: bridge::Callback) -> Option<cli::$request> {
                    match callback.request {
                        Some(Request::$kind(request)) => Some(*request),
                        _ => None,
                    }
                }

                fn context(request: &cli::$request) -> Self::Context {
                    kinds!(@part request $($part)?)
                }

                fn answer(answer: Self::Answer) -> Answer {
                    Answer::$kind(Box::new(answer))
                }
            }

            impl Reply<$kind> for $($module)::+ {
                fn reply(self, _: &<$kind as Kind>::Context) -> Result<Option<Self>, HandlerError> {
                    Ok(Some(self))
                }
            }
        )*
    };
    (@type) => { () };
    (@type $context:ty) => { $context };
    (@part $request:ident) => {{ let _ = $request; }};
    (@part $request:ident $part:expr) => { ($part)($request) };
}

kinds! {
    /// The agent asks the user a question.
    UserInput: CallbackUserInputServiceRequestRequest => cli::CallbackUserInputServiceRequestResponse,
        Vec<String> = |request: &cli::CallbackUserInputServiceRequestRequest| request.choices.clone();
    /// A tool or an MCP server requests a form or a page visit from the user.
    Elicitation: ElicitationRequestedData => cli::UiElicitationResponse;
    /// The agent requests approval of its plan.
    ExitPlanMode: CallbackExitPlanModeServiceRequestRequest => cli::CallbackExitPlanModeServiceRequestResponse,
        String = |request: &cli::CallbackExitPlanModeServiceRequestRequest| request.recommended_action.clone();
    /// A rate limit is reached, and the agent requests to continue with another model.
    AutoModeSwitch: CallbackAutoModeSwitchServiceRequestRequest => cli::CallbackAutoModeSwitchServiceRequestResponse;
    /// A hook of any type.
    Hook: HookInvocation => cli::HookOutput;
    /// The CLI requests new text for sections of the system message.
    SystemMessageTransform: CallbackSystemMessageServiceTransformRequest
        => cli::CallbackSystemMessageServiceTransformResponse, HashMap<String, cli::SystemMessageSectionText>
        = |request: &cli::CallbackSystemMessageServiceTransformRequest| request.sections.clone();
    /// A user invoked a command of the caller.
    Command: CommandExecuteData => bridge::CommandAnswer;
    /// A queued command is due.
    QueuedCommand: CommandQueuedData => cli::QueuedCommandResult;
    /// An MCP server requests a model's answer.
    Sampling: SamplingRequestedData => bridge::SamplingAnswer;
    /// An MCP server needs an OAuth token.
    McpOauth: McpOauthRequiredData => cli::McpOauthPendingRequestResponse;
    /// An MCP server needs new headers.
    McpHeaders: McpHeadersRefreshRequiredData => cli::McpHeadersHandlePendingHeadersRefreshRequest;
    /// The session has reached its limit.
    SessionLimits: SessionLimitsExhaustedRequestedData => cli::UiSessionLimitsExhaustedResponse;
    /// A model provider needs a bearer token.
    ProviderToken: CallbackProviderTokenServiceGetTokenRequest => cli::CallbackProviderTokenServiceGetTokenResponse;
    /// The CLI needs a GitHub token.
    GithubToken: CallbackGitHubTokenServiceGetTokenRequest => cli::CallbackGitHubTokenServiceGetTokenResponse;
    /// The CLI opens a canvas of the caller.
    CanvasOpen: CallbackCanvasServiceOpenRequest => cli::CallbackCanvasServiceOpenResponse;
    /// The CLI closes a canvas.
    CanvasClose: CallbackCanvasServiceCloseRequest => cli::CallbackCanvasServiceCloseResponse;
    /// The CLI invokes an action of a canvas.
    CanvasAction: CallbackCanvasActionServiceInvokeRequest => cli::CallbackCanvasActionServiceInvokeResponse;
    /// The CLI lists the skills of a caller.
    SkillList: InternalCallbackSkillProviderServiceListRequest
        => cli::InternalCallbackSkillProviderServiceListResponse;
    /// The CLI reads a skill of a caller.
    SkillRead: InternalCallbackSkillProviderServiceReadRequest
        => cli::InternalCallbackSkillProviderServiceReadResponse;
    /// The CLI runs a workflow of a caller.
    WorkflowExecute: CallbackWorkflowServiceExecuteRequest => cli::CallbackWorkflowServiceExecuteResponse;
    /// The CLI ends a workflow.
    WorkflowAbort: CallbackWorkflowServiceAbortRequest => cli::CallbackWorkflowServiceAbortResponse;
    /// The CLI runs an agent factory of a caller.
    FactoryExecute: CallbackFactoryServiceExecuteRequest => cli::CallbackFactoryServiceExecuteResponse;
    /// The CLI ends an agent factory.
    FactoryAbort: CallbackFactoryServiceAbortRequest => cli::CallbackFactoryServiceAbortResponse;
    /// The CLI cancels a task of a caller.
    TaskCancel: CallbackTasksServiceCancelRequest => cli::CallbackTasksServiceCancelResponse;
    /// An installation needs a user's consent.
    InstallationConfirm: CallbackInstallationsServiceConfirmRequest => cli::CallbackInstallationsServiceConfirmResponse;
    /// The CLI starts an extension.
    ExtensionLaunch: CallbackExtensionLaunchProviderServiceResolveRequest
        => cli::CallbackExtensionLaunchProviderServiceResolveResponse;
    /// The CLI runs a function on the caller's user-interface thread.
    UiThread: CallbackUiThreadServiceRunRequest => cli::CallbackUiThreadServiceRunResponse;
    /// Reads a text file of the session's file system.
    FsReadFile: CallbackSessionFsServiceReadFileRequest => cli::CallbackSessionFsServiceReadFileResponse;
    /// Reads a file as bytes.
    FsReadFileBytes: CallbackSessionFsServiceReadFileBytesRequest => cli::CallbackSessionFsServiceReadFileBytesResponse;
    /// Writes a text file.
    FsWriteFile: CallbackSessionFsServiceWriteFileRequest => cli::CallbackSessionFsServiceWriteFileResponse;
    /// Writes a file as bytes.
    FsWriteFileBytes: CallbackSessionFsServiceWriteFileBytesRequest
        => cli::CallbackSessionFsServiceWriteFileBytesResponse;
    /// Appends text to a file.
    FsAppendFile: CallbackSessionFsServiceAppendFileRequest => cli::CallbackSessionFsServiceAppendFileResponse;
    /// Checks whether a path exists.
    FsExists: CallbackSessionFsServiceExistsRequest => cli::CallbackSessionFsServiceExistsResponse;
    /// Returns the attributes of a path.
    FsStat: CallbackSessionFsServiceStatRequest => cli::CallbackSessionFsServiceStatResponse;
    /// Creates a directory.
    FsMkdir: CallbackSessionFsServiceMkdirRequest => cli::CallbackSessionFsServiceMkdirResponse;
    /// Lists the names in a directory.
    FsReaddir: CallbackSessionFsServiceReaddirRequest => cli::CallbackSessionFsServiceReaddirResponse;
    /// Lists a directory with the kind of each entry.
    FsReaddirWithTypes: CallbackSessionFsServiceReaddirWithTypesRequest
        => cli::CallbackSessionFsServiceReaddirWithTypesResponse;
    /// Removes a path.
    FsRm: CallbackSessionFsServiceRmRequest => cli::CallbackSessionFsServiceRmResponse;
    /// Moves a path.
    FsRename: CallbackSessionFsServiceRenameRequest => cli::CallbackSessionFsServiceRenameResponse;
    /// Runs a statement on a SQLite database of the session.
    FsSqliteQuery: CallbackSessionFsServiceSqliteQueryRequest => cli::CallbackSessionFsServiceSqliteQueryResponse;
    /// Runs several statements on a SQLite database in a transaction.
    FsSqliteTransaction: CallbackSessionFsServiceSqliteTransactionRequest
        => cli::CallbackSessionFsServiceSqliteTransactionResponse;
    /// Checks whether a SQLite database exists.
    FsSqliteExists: CallbackSessionFsServiceSqliteExistsRequest => cli::CallbackSessionFsServiceSqliteExistsResponse;
    /// Starts a model request that the caller answers.
    ModelRequestStart: CallbackLlmInferenceServiceHttpRequestStartRequest
        => cli::CallbackLlmInferenceServiceHttpRequestStartResponse;
    /// The next piece of a model request's body.
    ModelRequestChunk: CallbackLlmInferenceServiceHttpRequestChunkRequest
        => cli::CallbackLlmInferenceServiceHttpRequestChunkResponse;
}

/// The agent needs permission for an action.
#[derive(Debug)]
pub enum Permission {}

impl sealed::Sealed for Permission {}

impl Kind for Permission {
    type Request = PermissionRequest;
    type Answer = cli::PermissionDecision;
    type Context = ();
    const KIND: CallbackKind = CallbackKind::Permission;

    fn request(callback: bridge::Callback) -> Option<PermissionRequest> {
        PermissionRequest::of(callback)
    }

    fn context(_: &PermissionRequest) {}

    fn answer(answer: cli::PermissionDecision) -> Answer {
        Answer::Permission(Box::new(answer))
    }
}

/// Declares hooks: `Kind "hookType": input => output`.
macro_rules! hooks {
    ($($(#[$doc:meta])* $kind:ident $hook:literal: $input:ident $(=> $output:ident)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $kind {}

            impl sealed::Sealed for $kind {}

            impl Kind for $kind {
                type Request = cli::$input;
                type Answer = cli::HookOutput;
                type Context = ();
                const KIND: CallbackKind = CallbackKind::Hook;
                const HOOK: Option<&'static str> = Some($hook);

                fn request(callback: bridge::Callback) -> Option<cli::$input> {
                    match callback.request {
                        Some(Request::Hook(hook)) => match hook.data {
                            Some(HookData::$kind(input)) => Some(input),
                            _ => None,
                        },
                        _ => None,
                    }
                }

                fn context(_: &cli::$input) {}

                fn answer(answer: cli::HookOutput) -> Answer {
                    Answer::Hook(Box::new(answer))
                }
            }

            impl Reply<$kind> for () {
                /// No effect.
                fn reply(self, (): &()) -> Result<Option<cli::HookOutput>, HandlerError> {
                    Ok(Some(cli::HookOutput::default()))
                }
            }

            $(
                impl Reply<$kind> for cli::$output {
                    fn reply(self, (): &()) -> Result<Option<cli::HookOutput>, HandlerError> {
                        Ok(Some(cli::HookOutput { variant: Some(HookVariant::$kind(self)) }))
                    }
                }

                impl Reply<$kind> for Option<cli::$output> {
                    /// None has no effect.
                    fn reply(self, (): &()) -> Result<Option<cli::HookOutput>, HandlerError> {
                        Ok(Some(cli::HookOutput { variant: self.map(HookVariant::$kind) }))
                    }
                }
            )?
        )*
    };
}

hooks! {
    /// Before a tool runs.
    PreToolUse "preToolUse": HookPreToolUseInput => HookPreToolUseOutput;
    /// Before a tool of an MCP server is called.
    PreMcpToolCall "preMcpToolCall": HookPreMcpToolCallInput => HookPreMcpToolCallOutput;
    /// After a tool has succeeded.
    PostToolUse "postToolUse": HookPostToolUseInput => HookPostToolUseOutput;
    /// After a tool has failed.
    PostToolUseFailure "postToolUseFailure": HookPostToolUseFailureInput => HookPostToolUseFailureOutput;
    /// When a prompt arrives.
    UserPromptSubmitted "userPromptSubmitted": HookUserPromptSubmittedInput => HookUserPromptSubmittedOutput;
    /// When a prompt has the form that the model receives.
    UserPromptTransformed "userPromptTransformed": HookUserPromptTransformedInput => HookUserPromptTransformedOutput;
    /// When the session starts.
    SessionStart "sessionStart": HookSessionStartInput => HookSessionStartOutput;
    /// When the session ends.
    SessionEnd "sessionEnd": HookSessionEndInput => HookSessionEndOutput;
    /// When something failed.
    ErrorOccurred "errorOccurred": HookErrorOccurredInput => HookErrorOccurredOutput;
    /// When the agent considers its work done.
    AgentStop "agentStop": HookAgentStopInput => HookAgentStopOutput;
    /// When a sub-agent starts.
    SubagentStart "subagentStart": HookSubagentStartInput;
    /// When a sub-agent stops.
    SubagentStop "subagentStop": HookSubagentStopInput;
}
