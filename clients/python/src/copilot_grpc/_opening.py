"""Opens sessions as a participant."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from google.protobuf.field_mask_pb2 import FieldMask

from ._client import Connection
from ._handlers import Handlers
from ._participant import Participant
from ._session import Session
from .bridge import v1 as bridge
from .model import Models
from .options import CreateOptions, OpenOptions, ParticipantOptions, ResumeOptions

if TYPE_CHECKING:
    from .cli import v1 as cli

_OPTIONS: dict[str, Any] = {"create": CreateOptions, "resume": ResumeOptions, "join": ParticipantOptions}


async def open_session(
    connection: Connection, how: str, session_id: str, options: Any, forget: Callable[[Session], None]
) -> Session:
    """Creates, resumes or joins a session. Raises TypeError for unknown options."""
    if unknown := sorted(set(options) - _all_keys(_OPTIONS[how])):
        raise TypeError(f"{how}_session has no option {', '.join(map(repr, unknown))}")
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


def _start(how: str, session_id: str, options: Any, handlers: Handlers) -> bridge.AttachStart:
    if how == "join":
        return bridge.AttachStart(join_session_id=session_id)
    common: dict[str, Any] = {
        "request_id": options.get("request_id") or uuid.uuid4().hex,
        "config": _config(options, handlers),
        "provider_ref": options.get("provider_ref", ""),
        "lifetime": options.get("lifetime"),
        "on_interruption": options.get("interrupted_turns"),
        "handlers": options.get("session_handlers"),
        "runtime_profile": _profile(options),
    }
    if fields := options.get("clear"):
        common["update_mask"] = FieldMask(paths=fields)
    if timeout := options.get("callback_timeout"):
        common["callback_timeout"] = timedelta(seconds=timeout)
    if how == "create":
        new_id = options.get("session_id", "")
        create = bridge.CreateSessionRequest(
            session_id=new_id, cloud=options.get("cloud"), labels=options.get("labels"),
            node_labels=options.get("node_labels"), **common,
        )  # fmt: skip
        return bridge.AttachStart(create=create)
    resume = bridge.ResumeSessionRequest(
        session_id=session_id, options=options.get("resume"),
        continue_pending_work=options.get("continue_pending_work", False), **common,
    )  # fmt: skip
    return bridge.AttachStart(resume=resume)


def _config(options: OpenOptions, handlers: Handlers) -> cli.SessionConfig | None:
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
    config.tools.extend(handlers.declared_tools(True))
    return config if given is not None or config.ByteSize() else None


def _profile(options: OpenOptions) -> bridge.RuntimeProfile | None:
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
