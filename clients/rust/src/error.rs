//! Errors of the library.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::bridge::v1 as bridge;
use crate::channel::TOKEN_GENERATION;
use crate::turn::Outcome;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

const DOMAIN: &str = "copilot-grpc";
const REASON_PREFIX: &str = "ERROR_REASON_";
/// Reasons of the library, which no server gives.
const LOCAL: [&str; 6] = [
    "CONNECTION_LOST",
    "DEADLINE_EXCEEDED",
    "SERVER_NOT_FOUND",
    "SERVER_INCOMPATIBLE",
    "SESSION_CLOSED",
    "TURN_FAILED",
];

/// A refusal or failure of the server, of the connection to it, or of the library.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    reason: Reason,
    reason_name: String,
    message: String,
    field: String,
    metadata: HashMap<String, String>,
    retry_after: Duration,
    outcome: Option<Outcome>,
    /// Generation of the token that the call sent; none without a token.
    token_generation: Option<u64>,
    source: Option<Status>,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $code:ident;)*) => {
        /// The cause of an [`Error`].
        ///
        /// Most are the reasons of the server, which `copilot/bridge/v1/error.proto` defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// The name, such as `SESSION_NOT_FOUND`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)* }
            }

            fn of_server(name: &str) -> Self {
                match name {
                    _ if LOCAL.contains(&name) => Self::Unknown,
                    $($text => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

reasons! {
    /// The server gave no reason, or one that is newer than this library; see [`Error::reason_name`].
    Unknown = "", Unknown;
    /// The server cannot be reached, or the connection broke.
    ConnectionLost = "CONNECTION_LOST", Unavailable;
    /// The call's own time limit passed.
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded;
    /// There is no server to connect to; the message contains the remedy.
    ServerNotFound = "SERVER_NOT_FOUND", Unavailable;
    /// The server is no copilot-grpc, or its version does not work with this library.
    ServerIncompatible = "SERVER_INCOMPATIBLE", FailedPrecondition;
    /// The participation is over: closed here, or ended by the server.
    SessionClosed = "SESSION_CLOSED", Cancelled;
    /// A turn did not complete; [`Error::outcome`] has the details.
    TurnFailed = "TURN_FAILED", Unknown;
    /// A field is missing, malformed or out of its range; also options that contradict each other.
    InvalidField = "INVALID_FIELD", InvalidArgument;
    /// The prompt has neither text nor attachments.
    PromptEmpty = "PROMPT_EMPTY", InvalidArgument;
    /// The prompt exceeds the server's maximum.
    PromptTooLarge = "PROMPT_TOO_LARGE", InvalidArgument;
    /// A tool's name does not match `^[a-zA-Z0-9_-]+$`.
    ToolNameInvalid = "TOOL_NAME_INVALID", InvalidArgument;
    /// Another participant, or the session, has a tool of that name.
    ToolNameConflict = "TOOL_NAME_CONFLICT", AlreadyExists;
    /// An answer does not fit its callback.
    AnswerInvalid = "ANSWER_INVALID", InvalidArgument;
    /// A `json_extra` contains a member that it must not contain.
    JsonExtraForbidden = "JSON_EXTRA_FORBIDDEN", InvalidArgument;
    /// The same request id came with a different request.
    RequestIdReused = "REQUEST_ID_REUSED", InvalidArgument;
    /// The session or a participant has a command of that name.
    CommandNameConflict = "COMMAND_NAME_CONFLICT", AlreadyExists;
    /// The session does not exist, does not belong to the caller, or is disconnected.
    SessionNotFound = "SESSION_NOT_FOUND", NotFound;
    /// A session with that id exists.
    SessionExists = "SESSION_EXISTS", AlreadyExists;
    /// Another process has the session open.
    SessionInUse = "SESSION_IN_USE", FailedPrecondition;
    /// The session's provider needs credentials that the server no longer has.
    CredentialsNeeded = "CREDENTIALS_NEEDED", FailedPrecondition;
    /// The session's current activity does not permit the operation.
    SessionBusy = "SESSION_BUSY", FailedPrecondition;
    /// There is no event at that position.
    EventNotFound = "EVENT_NOT_FOUND", NotFound;
    /// The CLI process ended during a send, and the history does not show whether the message arrived.
    SendUnconfirmed = "SEND_UNCONFIRMED", Aborted;
    /// The CLI refused the session's configuration; the message is the CLI's.
    SessionRefused = "SESSION_REFUSED", FailedPrecondition;
    /// No attached participant provides the session's files or answers its model requests.
    HandlerMissing = "HANDLER_MISSING", FailedPrecondition;
    /// The server cannot use the session at the moment, such as when its storage does not work.
    SessionUnavailable = "SESSION_UNAVAILABLE", Unavailable;
    /// No such callback is pending.
    CallbackNotFound = "CALLBACK_NOT_FOUND", NotFound;
    /// The callback has been answered or withdrawn.
    CallbackResolved = "CALLBACK_RESOLVED", FailedPrecondition;
    /// The participant does not exist, or its grace time has expired.
    ParticipantNotFound = "PARTICIPANT_NOT_FOUND", NotFound;
    /// Another stream uses this participant's token.
    ParticipantReplaced = "PARTICIPANT_REPLACED", Aborted;
    /// The frames of an Attach stream are in the wrong order.
    FrameUnexpected = "FRAME_UNEXPECTED", FailedPrecondition;
    /// The server cannot find the CLI; the message contains the remedy.
    CliNotFound = "CLI_NOT_FOUND", FailedPrecondition;
    /// The server could not install the CLI.
    CliInstallFailed = "CLI_INSTALL_FAILED", FailedPrecondition;
    /// The server does not support the CLI's version or protocol.
    CliUnsupported = "CLI_UNSUPPORTED", FailedPrecondition;
    /// The CLI exited or did not answer while starting.
    CliStartFailed = "CLI_START_FAILED", Unavailable;
    /// The CLI process ended during the call.
    RuntimeLost = "RUNTIME_LOST", Unavailable;
    /// The CLI crashes repeatedly.
    CliCrashLoop = "CLI_CRASH_LOOP", Unavailable;
    /// The CLI server that the server dials cannot be reached.
    RuntimeDialFailed = "RUNTIME_DIAL_FAILED", Unavailable;
    /// The dialled CLI server refused the connection token.
    RuntimeAuthFailed = "RUNTIME_AUTH_FAILED", FailedPrecondition;
    /// The CLI is not signed in, and the session has no provider.
    NotSignedIn = "NOT_SIGNED_IN", FailedPrecondition;
    /// The running CLI does not have the method.
    MethodUnknown = "METHOD_UNKNOWN", Unimplemented;
    /// The CLI answered with an error; the message is the CLI's.
    CliError = "CLI_ERROR", Internal;
    /// The CLI broke the protocol.
    CliProtocolError = "CLI_PROTOCOL_ERROR", Internal;
    /// The CLI process has ended.
    CliExited = "CLI_EXITED", Unavailable;
    /// The CLI process stopped answering and was killed.
    CliHung = "CLI_HUNG", Unavailable;
    /// The server is ending its CLI processes.
    RuntimeStopping = "RUNTIME_STOPPING", Unavailable;
    /// No CLI process of the profile runs, and the caller may not start one.
    RuntimeNotRunning = "RUNTIME_NOT_RUNNING", FailedPrecondition;
    /// CLI processes with an earlier confinement still run.
    ConfinementChanging = "CONFINEMENT_CHANGING", Unavailable;
    /// The CLI's files differ from the published ones.
    CliUnverified = "CLI_UNVERIFIED", FailedPrecondition;
    /// The CLI process does not exist, or does not belong to the caller.
    RuntimeNotFound = "RUNTIME_NOT_FOUND", NotFound;
    /// The CLI process has ended, or is being replaced.
    RuntimeEnding = "RUNTIME_ENDING", FailedPrecondition;
    /// No living replica of the cluster has this name.
    NodeNotFound = "NODE_NOT_FOUND", NotFound;
    /// No other replica of the cluster takes sessions.
    NodesDraining = "NODES_DRAINING", FailedPrecondition;
    /// No server that could have the session has the labels that it needs.
    NodeLabelsUnmet = "NODE_LABELS_UNMET", FailedPrecondition;
    /// A limit is reached.
    LimitExceeded = "LIMIT_EXCEEDED", ResourceExhausted;
    /// The server is draining.
    Draining = "DRAINING", Unavailable;
    /// The call has no credentials, or wrong or expired ones.
    Unauthenticated = "UNAUTHENTICATED", Unauthenticated;
    /// The caller may not do this.
    Forbidden = "FORBIDDEN", PermissionDenied;
    /// The feature is disabled in this server.
    FeatureDisabled = "FEATURE_DISABLED", FailedPrecondition;
    /// A fault of the server.
    Internal = "INTERNAL", Internal;
    /// The CLI did not answer in time.
    Timeout = "TIMEOUT", DeadlineExceeded;
    /// The call was cancelled.
    Cancelled = "CANCELLED", Cancelled;
    /// The server refuses this method of `copilot.cli.v1`; the message contains the alternative.
    MethodRefused = "METHOD_REFUSED", Unimplemented;
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Error {
    /// An error of the library with a reason.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code: reason.code(),
            reason,
            reason_name: reason.name().to_owned(),
            message: message.into(),
            field: String::new(),
            metadata: HashMap::new(),
            retry_after: Duration::ZERO,
            outcome: None,
            token_generation: None,
            source: None,
        }))
    }

    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new(Reason::ConnectionLost, message)
    }

    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(Reason::InvalidField, message);
        field.clone_into(&mut error.0.field);
        error
    }

    pub(crate) fn closed(session_id: &str, cause: &str) -> Self {
        let text = format!("session {session_id:?} is over for this participant: {cause}");
        let mut error = Self::new(Reason::SessionClosed, text);
        error.0.metadata.insert("session_id".to_owned(), session_id.to_owned());
        error.0.metadata.insert("cause".to_owned(), cause.to_owned());
        error
    }

    pub(crate) fn turn_failed(outcome: Outcome) -> Self {
        let text = match &outcome.error {
            Some(error) => format!("the turn ended: {}: {}", outcome.status, error.message),
            None => format!("the turn ended: {}", outcome.status),
        };
        let mut error = Self::new(Reason::TurnFailed, text);
        error.0.outcome = Some(outcome);
        error
    }

    /// The error of a failure in a stream that continues.
    pub(crate) fn of_failure(failure: bridge::Failure) -> Self {
        let known = bridge::ErrorReason::try_from(failure.reason).unwrap_or_default();
        let name = known.as_str_name().trim_start_matches(REASON_PREFIX);
        let mut error = Self::new(Reason::Unknown, failure.message);
        error.0.code = Code::from(failure.code);
        error.set_reason(if known == bridge::ErrorReason::Unspecified { "" } else { name });
        error.0.field = failure.field;
        error.0.metadata = failure.metadata;
        error
    }

    fn set_reason(&mut self, name: &str) {
        name.clone_into(&mut self.0.reason_name);
        self.0.reason = match (Reason::of_server(name), self.0.code) {
            (Reason::Unknown, Code::Unavailable) if name.is_empty() => Reason::ConnectionLost,
            (Reason::Unknown, Code::DeadlineExceeded) if name.is_empty() => Reason::DeadlineExceeded,
            (reason, _) => reason,
        };
    }

    /// The cause.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The name of the cause; of reasons that are newer than this library too. Empty if the server gave none.
    pub fn reason_name(&self) -> &str {
        &self.0.reason_name
    }

    /// The gRPC status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The human-readable text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Path of the invalid field of the request; empty if there is none.
    pub fn field(&self) -> &str {
        &self.0.field
    }

    /// Further details: `session_id`, `callback_id`, `method`, for [`Reason::SessionClosed`] the `cause`, and others.
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.0.metadata
    }

    /// Time to wait before a retry; zero if the server does not say.
    pub fn retry_after(&self) -> Duration {
        self.0.retry_after
    }

    /// The outcome of a turn, for [`Reason::TurnFailed`].
    pub fn outcome(&self) -> Option<&Outcome> {
        self.0.outcome.as_ref()
    }

    /// The generation of the token that the server refused.
    pub(crate) fn refused_token(&self) -> Option<u64> {
        self.0.token_generation.filter(|_| self.0.code == Code::Unauthenticated)
    }

    /// Whether the connection failed, so that a new one may help.
    pub fn is_broken(&self) -> bool {
        if self.0.reason == Reason::SessionClosed {
            return false;
        }
        if self.0.code == Code::Unavailable {
            return true;
        }
        // Only the server gives reasons. Proxies and HTTP/2 report a cut connection under several codes.
        let codes = [Code::Cancelled, Code::Unknown, Code::Internal, Code::DeadlineExceeded, Code::Aborted];
        matches!(self.0.reason, Reason::Unknown | Reason::DeadlineExceeded | Reason::ConnectionLost)
            && (self.0.reason_name.is_empty() || self.0.reason != Reason::Unknown)
            && codes.contains(&self.0.code)
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let mut error = Self::new(Reason::Unknown, status.message());
        error.0.code = status.code();
        if status.code() == Code::Unauthenticated {
            error.0.message.push_str(": give a token with `Connect::token` or COPILOT_GRPC_TOKEN");
        }
        let trailer = |key: &str| status.metadata().get(key).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
        let (mut reason, mut field) = (trailer("copilot-reason"), trailer("copilot-field"));
        let details = status.get_error_details();
        if let Some(info) = details.error_info().filter(|info| info.domain == DOMAIN) {
            reason.clone_from(&info.reason);
            error.0.metadata.clone_from(&info.metadata);
            if field.is_empty() {
                field = info.metadata.get("field").cloned().unwrap_or_default();
            }
        }
        if let Some(first) = details.bad_request().and_then(|bad| bad.field_violations.first()) {
            field.clone_from(&first.field);
        }
        if let Some(delay) = details.retry_info().and_then(|retry| retry.retry_delay) {
            error.0.retry_after = delay;
        }
        error.0.field = field;
        error.0.token_generation = trailer(TOKEN_GENERATION).parse().ok();
        error.set_reason(&reason);
        error.0.source = Some(status);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.code)?;
        if !self.0.reason_name.is_empty() {
            write!(f, " {}", self.0.reason_name)?;
        }
        if !self.0.field.is_empty() {
            write!(f, " (field {:?})", self.0.field)?;
        }
        write!(f, ": {}", self.0.message)?;
        match self.0.metadata.get("holder") {
            Some(holder) if !self.0.message.contains(holder) => write!(f, ": participant {holder:?} has it"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f) // what a program prints whose `main` returns the error
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|status| status as _)
    }
}

/// An error of a handler, whose text is the answer to the callback.
///
/// Any other error of a handler, which `?` converts, is answered with `The handler failed.`, except that of a slash
/// command. Its text goes to the program's log.
#[derive(Debug)]
pub struct HandlerError {
    pub(crate) text: Option<String>,
    pub(crate) cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl HandlerError {
    /// Answers with an error and its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), cause: None }
    }

    /// Answers with an error without details. The cause goes to the log.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { text: None, cause: Some(cause.into()) }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::internal(error)
    }
}
