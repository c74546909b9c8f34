"""Answers for `Session.resolve`.

for callback in await session.pending():
    await session.resolve(callback.callback_id, answers.approve())
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bridge import v1 as bridge


def tool(result: object) -> bridge.Answer:
    """Answers a tool call; the result is treated like that of a tool."""
    from .bridge import v1 as bridge
    from .tools import tool_answer

    return bridge.Answer(tool=tool_answer(result))


def approve() -> bridge.Answer:
    """Approves a permission request once."""
    from .bridge import v1 as bridge

    return bridge.Answer(approve=bridge.Approve())


def approve_for_session() -> bridge.Answer:
    """Approves a permission request and equal ones for the rest of the session."""
    from .bridge import v1 as bridge
    from .cli import v1 as cli

    decision = cli.PermissionDecision(approve_for_session=cli.PermissionDecisionApproveForSession())
    return bridge.Answer(permission=decision)


def reject(feedback: str = "Permission denied.") -> bridge.Answer:
    """Rejects a permission request with a text for the agent. An empty text also aborts the turn."""
    from .bridge import v1 as bridge

    return bridge.Answer(reject=bridge.Reject(feedback=feedback))


def of(callback: bridge.Callback, result: object) -> bridge.Answer:
    """Answers any other callback with what its handler would return. Raises TypeError if the result does not fit."""
    from ._answers import answer_of

    kind = callback.WhichOneof("request")
    if kind in (None, "tool_call", "permission", "raw"):
        raise TypeError(f"a callback of kind {kind} has a function of its own")
    return answer_of(str(kind), getattr(callback, str(kind)), result)


def raw(value: Mapping[str, Any] | object) -> bridge.Answer:
    """Answers a callback without a type, with a JSON value."""
    from ._answers import answer_raw

    return answer_raw(value)


def error(text: str) -> bridge.Answer:
    """Answers any callback with an error."""
    from ._answers import answer_error

    return answer_error(text)
