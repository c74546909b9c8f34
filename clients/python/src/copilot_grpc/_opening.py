"""Opens sessions as a participant."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from google.protobuf.field_mask_pb2 import FieldMask

from ._client import Connection
from ._handlers import Handlers
from ._participant import Participant
from ._session import Session
from .bridge import v1 as bridge
from .errors import SessionExists, SessionNotFound
from .model import Models
from .options import ParticipantOptions, SessionOptions

if TYPE_CHECKING:
    from .cli import v1 as cli

How = Literal["create", "resume", "open", "join"]
# How often `open_session` looks for a session that others create and delete at the same time, and the longest pause
# between, in seconds.
_ROUNDS, _PAUSE = 5, 0.1


async def open_session(
    connection: Connection, how: How, session_id: str, options: Any, forget: Callable[[Session], None]
) -> Session:
    """Creates, resumes or joins a session, or resumes it or else creates it. Raises TypeError for unknown options."""
    known = _all_keys(ParticipantOptions if how == "join" else SessionOptions)
    if unknown := sorted(set(options) - known):
        raise TypeError(f"{how}_session has no option {', '.join(map(repr, unknown))}")
    if how != "open":
        return await _open(connection, how, session_id, options, forget)
    for attempt in range(_ROUNDS):
        with contextlib.suppress(SessionNotFound):
            return await _open(connection, "resume", session_id, _numbered(options, f"resume-{attempt}"), forget)
        try:
            return await _open(connection, "create", session_id, _numbered(options, f"create-{attempt}"), forget)
        except SessionExists:
            if attempt == _ROUNDS - 1:
                raise
        await asyncio.sleep(random.uniform(0, _PAUSE))
    raise AssertionError("unreachable")


def _numbered(options: Any, attempt: str) -> Any:
    """Options whose request id, if the program gives one, is that of one of several requests."""
    given = options.get("request_id")
    return {**options, "request_id": f"{given}-{attempt}"} if given else options


async def _open(
    connection: Connection, how: How, session_id: str, options: Any, forget: Callable[[Session], None]
) -> Session:
    more: dict[str, Callable[..., Any]] = {}
    models: Models | None = None
    if transport := options.get("model_transport"):
        models = Models(transport)
        more.update(models.handlers())
    if files := options.get("session_files"):
        more.update(files.handlers())
    handlers = Handlers(options, more)
    participant = Participant(connection, options, handlers, models)
    if models is not None:
        models.bind(participant.live)
    started = await participant.open(_start(how, session_id, options, handlers), connection.call_policy)
    return Session(connection, participant.session_id, participant, started.session, forget, how != "create")


def _all_keys(options: Any) -> set[str]:
    """The keys of a TypedDict and of those that it extends."""
    return {*options.__required_keys__, *options.__optional_keys__}


def _start(how: How, session_id: str, options: Any, handlers: Handlers) -> bridge.AttachStart:
    if how == "join":
        return bridge.AttachStart(join_session_id=session_id)
    common: dict[str, Any] = {
        "request_id": options.get("request_id") or uuid.uuid4().hex,
        "config": _config(options, handlers),
        "provider_ref": options.get("provider_ref", ""),
        "lifetime": _value(bridge.Lifetime, "LIFETIME", options, "lifetime"),
        "on_interruption": _value(bridge.OnInterruption, "ON_INTERRUPTION", options, "interrupted_turns"),
        "handlers": options.get("session_handlers"),
        "runtime_profile": _profile(options),
    }
    if fields := options.get("clear"):
        common["update_mask"] = FieldMask(paths=fields)
    if timeout := options.get("callback_timeout"):
        common["callback_timeout"] = timedelta(seconds=timeout)
    if how == "create":
        create = bridge.CreateSessionRequest(
            session_id=session_id, cloud=options.get("cloud"), labels=options.get("labels"),
            node_labels=options.get("node_labels"), **common,
        )  # fmt: skip
        return bridge.AttachStart(create=create)
    resume = bridge.ResumeSessionRequest(
        session_id=session_id, options=options.get("resume"),
        continue_pending_work=options.get("continue_pending_work", False), **common,
    )  # fmt: skip
    return bridge.AttachStart(resume=resume)


def _config(options: SessionOptions, handlers: Handlers) -> cli.SessionConfig:
    from .cli import v1 as cli

    config = cli.SessionConfig()
    if given := options.get("config"):
        config.CopyFrom(given)
    if "model" in options:
        config.model = options["model"]
    if "working_directory" in options:
        config.working_directory = options["working_directory"]
    if "streaming" in options:
        config.streaming = options["streaming"]
    elif not config.HasField("streaming") and "streaming" not in options.get("clear", ()):
        config.streaming = True
    config.tools.extend(handlers.declared_tools(True))
    return config


def _value(enum: Any, prefix: str, options: Any, name: str) -> Any:
    """The value of an option whose words are those of an enum. Raises ValueError for any other word."""
    word = options.get(name)
    if word is None:
        return None
    words = [known.removeprefix(f"{prefix}_").lower() for known in enum.keys()[1:]]
    if word not in words:
        raise ValueError(f"{name} is {word!r}: want {' or '.join(map(repr, words))}")
    return enum.Value(f"{prefix}_{word.upper()}")


def _profile(options: SessionOptions) -> bridge.RuntimeProfile | None:
    """The profile of the CLI process, with what this participant provides."""
    given, files = options.get("runtime_profile"), options.get("session_files")
    if files is None and "model_transport" not in options:
        return given
    profile = bridge.RuntimeProfile()
    if given is not None:
        profile.CopyFrom(given)
    if files is not None and not profile.HasField("session_fs"):
        profile.session_fs.CopyFrom(files.message())
    if "model_transport" in options and not profile.HasField("model_inference"):
        profile.model_inference.SetInParent()
    return profile
