"""Exceptions of the library.

An error of the server has a class for its reason, such as `SessionNotFound`; all are subclasses of `CopilotError`.
Reasons that are newer than the library raise `CopilotError` itself, with the reason's name in `reason`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ._turn import Outcome
    from .bridge.v1 import Failure

_DOMAIN = "copilot-grpc"
_PREFIX = "ERROR_REASON_"


class CopilotError(Exception):
    """A refusal or failure of the server, or of the connection to it.

    Attributes:
        message: Human-readable.
        code: Name of the gRPC status code, such as "NOT_FOUND".
        reason: Machine-readable cause, such as "SESSION_NOT_FOUND"; empty for errors of the network.
        field: Path of the invalid field of the request; empty if there is none.
        metadata: Further details: session_id, callback_id, method and others.
        retry_after: Seconds to wait before a retry; 0 if the server does not say.
        token_replaced: The server refused the call's token, and the client has another one now.
    """

    _classes: ClassVar[dict[str, type[CopilotError]]] = {}
    default_code: ClassVar[str] = "UNKNOWN"
    default_reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str | None = None,
        field: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.reason = self.default_reason if reason is None else reason
        self.field = field
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.token_replaced = False

    def __init_subclass__(cls, reason: str = "", code: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if code:
            cls.default_code = code
        if reason:
            cls.default_reason = reason
            CopilotError._classes[reason] = cls

    def __str__(self) -> str:
        head = f"{self.code} {self.reason}".rstrip()
        at = f" (field {self.field!r})" if self.field else ""
        return f"{head}{at}: {self.message}"

    @property
    def is_broken(self) -> bool:
        """Whether the connection failed, or the token was replaced, so that a new attempt may help."""
        if self.code == "UNAVAILABLE" or self.token_replaced:
            return True
        # Only the server gives reasons. Proxies and HTTP/2 report a cut connection under several codes.
        return not self.reason and self.code in ("CANCELLED", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED")


class ConnectionLost(CopilotError, code="UNAVAILABLE"):
    """The server cannot be reached, or the connection broke."""


class DeadlineExceeded(CopilotError, code="DEADLINE_EXCEEDED"):
    """The call's own time limit passed."""


class ServerNotFound(CopilotError, code="UNAVAILABLE"):
    """There is no server to connect to; the message contains the remedy."""


class ServerIncompatible(CopilotError, code="FAILED_PRECONDITION"):
    """The server is no copilot-grpc, or its version does not work with this library."""


class InvalidField(CopilotError, reason="INVALID_FIELD", code="INVALID_ARGUMENT"):
    """A field is missing, malformed or out of its range."""


class PromptEmpty(CopilotError, reason="PROMPT_EMPTY", code="INVALID_ARGUMENT"):
    """The prompt has neither text nor attachments."""


class PromptTooLarge(CopilotError, reason="PROMPT_TOO_LARGE", code="INVALID_ARGUMENT"):
    """The prompt exceeds the server's maximum."""


class ToolNameInvalid(CopilotError, reason="TOOL_NAME_INVALID", code="INVALID_ARGUMENT"):
    """A tool's name does not match ^[a-zA-Z0-9_-]+$."""


class ToolNameConflict(CopilotError, reason="TOOL_NAME_CONFLICT", code="ALREADY_EXISTS"):
    """Another participant, or the session, has a tool of that name."""


class AnswerInvalid(CopilotError, reason="ANSWER_INVALID", code="INVALID_ARGUMENT"):
    """An answer does not fit its callback."""


class JsonExtraForbidden(CopilotError, reason="JSON_EXTRA_FORBIDDEN", code="INVALID_ARGUMENT"):
    """A json_extra contains a member that it must not contain."""


class RequestIdReused(CopilotError, reason="REQUEST_ID_REUSED", code="INVALID_ARGUMENT"):
    """The same request id came with a different request."""


class CommandNameConflict(CopilotError, reason="COMMAND_NAME_CONFLICT", code="ALREADY_EXISTS"):
    """The session or a participant has a command of that name."""


class SessionNotFound(CopilotError, reason="SESSION_NOT_FOUND", code="NOT_FOUND"):
    """The session does not exist, does not belong to the caller, or is disconnected."""


class SessionExists(CopilotError, reason="SESSION_EXISTS", code="ALREADY_EXISTS"):
    """A session with that id exists."""


class SessionInUse(CopilotError, reason="SESSION_IN_USE", code="FAILED_PRECONDITION"):
    """Another process has the session open."""


class CredentialsNeeded(CopilotError, reason="CREDENTIALS_NEEDED", code="FAILED_PRECONDITION"):
    """The session's provider needs credentials that the server no longer has."""


class SessionBusy(CopilotError, reason="SESSION_BUSY", code="FAILED_PRECONDITION"):
    """The session's current activity does not permit the operation."""


class EventNotFound(CopilotError, reason="EVENT_NOT_FOUND", code="NOT_FOUND"):
    """There is no event at that position."""


class SendUnconfirmed(CopilotError, reason="SEND_UNCONFIRMED", code="ABORTED"):
    """The runtime ended during a send, and the history does not show whether the message arrived."""


class SessionRefused(CopilotError, reason="SESSION_REFUSED", code="FAILED_PRECONDITION"):
    """The CLI refused the session's configuration; the message is the CLI's."""


class HandlerMissing(CopilotError, reason="HANDLER_MISSING", code="FAILED_PRECONDITION"):
    """No attached participant provides the session's files or answers its model requests."""


class SessionUnavailable(CopilotError, reason="SESSION_UNAVAILABLE", code="UNAVAILABLE"):
    """The server cannot use the session at the moment, such as when its storage does not work."""


class CallbackNotFound(CopilotError, reason="CALLBACK_NOT_FOUND", code="NOT_FOUND"):
    """No such callback is pending."""


class CallbackResolved(CopilotError, reason="CALLBACK_RESOLVED", code="FAILED_PRECONDITION"):
    """The callback has been answered or withdrawn."""


class ParticipantNotFound(CopilotError, reason="PARTICIPANT_NOT_FOUND", code="NOT_FOUND"):
    """The participant does not exist, or its grace time has expired."""


class ParticipantReplaced(CopilotError, reason="PARTICIPANT_REPLACED", code="ABORTED"):
    """Another stream uses this participant's token."""


class FrameUnexpected(CopilotError, reason="FRAME_UNEXPECTED", code="FAILED_PRECONDITION"):
    """The frames of an Attach stream are in the wrong order."""


class CliNotFound(CopilotError, reason="CLI_NOT_FOUND", code="FAILED_PRECONDITION"):
    """The server cannot find the CLI; the message contains the remedy."""


class CliInstallFailed(CopilotError, reason="CLI_INSTALL_FAILED", code="FAILED_PRECONDITION"):
    """The server could not install the CLI."""


class CliUnsupported(CopilotError, reason="CLI_UNSUPPORTED", code="FAILED_PRECONDITION"):
    """The server does not support the CLI's version or protocol."""


class CliStartFailed(CopilotError, reason="CLI_START_FAILED", code="UNAVAILABLE"):
    """The CLI exited or did not answer while starting."""


class RuntimeLost(CopilotError, reason="RUNTIME_LOST", code="UNAVAILABLE"):
    """The CLI process ended during the call."""


class CliCrashLoop(CopilotError, reason="CLI_CRASH_LOOP", code="UNAVAILABLE"):
    """The CLI crashes repeatedly."""


class RuntimeDialFailed(CopilotError, reason="RUNTIME_DIAL_FAILED", code="UNAVAILABLE"):
    """The CLI server that the server dials cannot be reached."""


class RuntimeAuthFailed(CopilotError, reason="RUNTIME_AUTH_FAILED", code="FAILED_PRECONDITION"):
    """The dialled CLI server refused the connection token."""


class NotSignedIn(CopilotError, reason="NOT_SIGNED_IN", code="FAILED_PRECONDITION"):
    """The CLI is not signed in, and the session has no provider."""


class MethodUnknown(CopilotError, reason="METHOD_UNKNOWN", code="UNIMPLEMENTED"):
    """The running CLI does not have the method."""


class CliError(CopilotError, reason="CLI_ERROR", code="INTERNAL"):
    """The CLI answered with an error; the message is the CLI's."""


class CliProtocolError(CopilotError, reason="CLI_PROTOCOL_ERROR", code="INTERNAL"):
    """The CLI broke the protocol."""


class CliExited(CopilotError, reason="CLI_EXITED", code="UNAVAILABLE"):
    """The CLI process has ended."""


class CliHung(CopilotError, reason="CLI_HUNG", code="UNAVAILABLE"):
    """The CLI process stopped answering and was killed."""


class RuntimeStopping(CopilotError, reason="RUNTIME_STOPPING", code="UNAVAILABLE"):
    """The server is ending its CLI processes."""


class RuntimeNotRunning(CopilotError, reason="RUNTIME_NOT_RUNNING", code="FAILED_PRECONDITION"):
    """No CLI process of the profile runs, and the caller may not start one."""


class ConfinementChanging(CopilotError, reason="CONFINEMENT_CHANGING", code="UNAVAILABLE"):
    """CLI processes with an earlier confinement still run."""


class CliUnverified(CopilotError, reason="CLI_UNVERIFIED", code="FAILED_PRECONDITION"):
    """The CLI's files differ from the published ones."""


class RuntimeNotFound(CopilotError, reason="RUNTIME_NOT_FOUND", code="NOT_FOUND"):
    """The CLI process does not exist, or does not belong to the caller."""


class RuntimeEnding(CopilotError, reason="RUNTIME_ENDING", code="FAILED_PRECONDITION"):
    """The CLI process has ended, or is being replaced."""


class NodeNotFound(CopilotError, reason="NODE_NOT_FOUND", code="NOT_FOUND"):
    """No living replica of the cluster has this name."""


class NodesDraining(CopilotError, reason="NODES_DRAINING", code="FAILED_PRECONDITION"):
    """No other replica of the cluster takes sessions."""


class NodeLabelsUnmet(CopilotError, reason="NODE_LABELS_UNMET", code="FAILED_PRECONDITION"):
    """No server that could have the session has the labels that it needs."""


class LimitExceeded(CopilotError, reason="LIMIT_EXCEEDED", code="RESOURCE_EXHAUSTED"):
    """A limit is reached."""


class Draining(CopilotError, reason="DRAINING", code="UNAVAILABLE"):
    """The server is draining."""


class Unauthenticated(CopilotError, reason="UNAUTHENTICATED", code="UNAUTHENTICATED"):
    """The call has no credentials, or wrong or expired ones."""


class Forbidden(CopilotError, reason="FORBIDDEN", code="PERMISSION_DENIED"):
    """The caller may not do this."""


class FeatureDisabled(CopilotError, reason="FEATURE_DISABLED", code="FAILED_PRECONDITION"):
    """The feature is disabled in this server."""


class InternalError(CopilotError, reason="INTERNAL", code="INTERNAL"):
    """A fault of the server."""


class TimedOut(CopilotError, reason="TIMEOUT", code="DEADLINE_EXCEEDED"):
    """The CLI did not answer in time."""


class Cancelled(CopilotError, reason="CANCELLED", code="CANCELLED"):
    """The call was cancelled."""


class MethodRefused(CopilotError, reason="METHOD_REFUSED", code="UNIMPLEMENTED"):
    """The server refuses this method of copilot.cli.v1; the message contains the alternative."""


class SessionClosed(CopilotError, code="CANCELLED"):
    """The participation is over: closed here, or ended by the server.

    Attributes:
        cause: "closed" after `close`; otherwise "disconnected", "deleted", "left", "replaced" or "unshared".
    """

    def __init__(self, session_id: str, cause: str) -> None:
        super().__init__(f"session {session_id!r} is over for this participant: {cause}")
        self.session_id, self.cause = session_id, cause

    @property
    def is_broken(self) -> bool:
        """False: a new connection does not help."""
        return False


class TurnFailed(CopilotError):
    """A turn did not complete; `outcome` has the details, and the text the cause and what to do."""

    def __init__(self, outcome: Outcome) -> None:
        cause = f": {outcome.error.message}" if outcome.error else ""
        super().__init__(f"the turn ended as {outcome.status}{cause}")
        self.outcome = outcome

    def __str__(self) -> str:
        return self.message


class ToolError(Exception):
    """Raised by a tool to fail with a text that the model reads."""


class HandlerError(Exception):
    """Raised by a handler of callbacks to answer with an error and its text."""


def make(code: str, reason: str, message: str, **details: Any) -> CopilotError:
    """The exception of a reason, or of a code if the error has no reason."""
    if reason:
        return CopilotError._classes.get(reason, CopilotError)(message, code=code, reason=reason, **details)
    by_code = {"UNAVAILABLE": ConnectionLost, "DEADLINE_EXCEEDED": DeadlineExceeded}
    return by_code.get(code, CopilotError)(message, code=code, **details)


def from_failure(failure: Failure) -> CopilotError:
    """The exception of a failure in a stream."""
    import grpc

    from .bridge.v1 import ErrorReason

    codes = {status.value[0]: status.name for status in grpc.StatusCode}
    name = ErrorReason.Name(failure.reason) if failure.reason in ErrorReason.values() else ""
    return make(
        codes.get(failure.code, "UNKNOWN"),
        name.removeprefix(_PREFIX) if failure.reason else "",
        failure.message,
        field=failure.field,
        metadata=failure.metadata,
    )


def from_rpc(error: Any) -> CopilotError:
    """The exception of a gRPC error. It has everything that the gRPC error says."""
    trailers = dict(error.trailing_metadata() or ())
    details: dict[str, Any] = {"field": _text(trailers.get("copilot-field", ""))}
    reason = _text(trailers.get("copilot-reason", ""))
    status = trailers.get("grpc-status-details-bin")
    if isinstance(status, bytes):
        reason = _read_status(status, details) or reason
    message = error.details() or ""
    if error.code().name == "UNAUTHENTICATED":
        message += ": give a token with the option token of Client.connect, or set COPILOT_GRPC_TOKEN"
    return make(error.code().name, reason, message, **details)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _read_status(status: bytes, details: dict[str, Any]) -> str:
    """Reads the google.rpc.Status of an error. Returns the reason; empty if it is not this server's."""
    from google.rpc import error_details_pb2, status_pb2

    reason = ""
    for any_message in status_pb2.Status.FromString(status).details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if any_message.Unpack(info):
            if info.domain == _DOMAIN:
                reason, details["metadata"] = info.reason, dict(info.metadata)
                details["field"] = details["field"] or info.metadata.get("field", "")
        elif any_message.Unpack(bad) and bad.field_violations:
            details["field"] = bad.field_violations[0].field
        elif any_message.Unpack(retry):
            details["retry_after"] = retry.retry_delay.ToTimedelta().total_seconds()
    return reason
