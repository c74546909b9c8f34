"""Permission requests of the agent, and rules that decide about them.

on_permission=[permission.approve("read"), permission.approve_for_session("write"), permission.deny_all]
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from .bridge import v1 as bridge
    from .cli import v1 as cli

_DENIED = "Permission denied."


@dataclass(frozen=True)
class Decision:
    """A decision about a permission request; the methods of `PermissionRequest` make it.

    Attributes:
        message: The decision as a message; None leaves the request to other participants.
    """

    message: cli.PermissionDecision | None


@dataclass(frozen=True)
class PermissionRequest:
    """The agent asks for permission to do something.

    Attributes:
        session_id: The session.
        callback_id: Id of the callback, as in `Session.resolve`.
        kind: Kind of the action: "shell", "write", "read", "url", "mcp", "custom-tool", "memory" and others.
        action: The details, as a message of that kind such as PermissionRequestShell; None for an unknown kind.
        data: Everything that the CLI says about the request.
    """

    session_id: str
    callback_id: str
    kind: str
    action: object
    data: cli.PermissionRequestedData

    def approve(self) -> Decision:
        """Approves this request."""
        from .cli import v1 as cli

        return Decision(cli.PermissionDecision(approve_once=cli.PermissionDecisionApproveOnce()))

    def approve_for_session(self) -> Decision:
        """Approves this request and equal ones for the rest of the session: the same commands, the same tool, all
        reading or all writing, or the URL's origin. A request without an equal, such as a hook's, is denied."""
        from .cli import v1 as cli

        return Decision(cli.PermissionDecision(approve_for_session=cli.PermissionDecisionApproveForSession()))

    def reject(self, feedback: str = _DENIED) -> Decision:
        """Rejects the request with a text for the agent. An empty text also aborts the turn."""
        from .cli import v1 as cli

        rejection = cli.PermissionDecisionReject()
        if feedback:
            rejection.feedback = feedback
        return Decision(cli.PermissionDecision(reject=rejection))

    def user_not_available(self) -> Decision:
        """Rejects the request because no user is available."""
        from .cli import v1 as cli

        return Decision(cli.PermissionDecision(user_not_available=cli.PermissionDecisionUserNotAvailable()))

    def abstain(self) -> Decision:
        """Leaves the request to the next rule, and then to other participants."""
        return Decision(None)

    @classmethod
    def of(cls, callback: bridge.Callback) -> PermissionRequest:
        """The request of a callback."""
        request = callback.permission.permission_request
        variant = request.WhichOneof("variant")
        action: object = None
        kind = (variant or "").replace("_", "-")
        if variant == "unrecognized":
            value = json.loads(request.unrecognized)
            kind = str(value.get("kind", "")) if isinstance(value, dict) else ""
        elif variant:
            action = getattr(request, variant)
        return cls(callback.session_id, callback.callback_id, kind, action, callback.permission)


Verdict = Union[Decision, bool]
"""The result of a permission handler: a decision, True to approve once, or False to reject."""

Rule = Callable[[PermissionRequest], Union[Verdict, Awaitable[Verdict]]]
"""Decides about a request. Rules are plain or coroutine functions."""


def approve_all(request: PermissionRequest) -> Verdict:
    """Approves every request once: for sandboxes and tests."""
    return True


def deny_all(request: PermissionRequest) -> Verdict:
    """Rejects every request."""
    return False


def approve(*kinds: str) -> Rule:
    """Approves requests of these kinds once, and abstains from others."""
    return lambda request: request.approve() if request.kind in kinds else request.abstain()


def approve_for_session(*kinds: str) -> Rule:
    """Approves requests of these kinds, and equal ones, for the rest of the session. Abstains from others."""
    return lambda request: request.approve_for_session() if request.kind in kinds else request.abstain()


def reject(*kinds: str, feedback: str = _DENIED) -> Rule:
    """Rejects requests of these kinds with a text for the agent, and abstains from others."""
    return lambda request: request.reject(feedback) if request.kind in kinds else request.abstain()


def first_of(rules: Sequence[Rule]) -> Callable[[PermissionRequest], Awaitable[Verdict]]:
    """Asks rules in their order until one does not abstain. If all abstain, the result abstains."""

    async def decide(request: PermissionRequest) -> Verdict:
        from ._run import call_handler

        for rule in rules:
            verdict: Verdict = await call_handler(rule, request)
            if not (isinstance(verdict, Decision) and verdict.message is None):
                return verdict
        return request.abstain()

    return decide


def as_message(request: PermissionRequest, verdict: object) -> cli.PermissionDecision | None:
    """A verdict as a message; None abstains. Raises TypeError for anything else."""
    if isinstance(verdict, bool):
        verdict = request.approve() if verdict else request.reject()
    if not isinstance(verdict, Decision):
        raise TypeError(f"a permission handler returned {verdict!r}: want a decision, True or False")
    return verdict.message
