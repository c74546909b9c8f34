"""Runs one case."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import case_handlers
from copilot.conformance.v1 import conformance_pb2 as pb

from copilot_grpc import (
    Attachment,
    Client,
    CopilotError,
    Gap,
    Outcome,
    PendingCallback,
    Reconnect,
    ServerIncompatible,
    Session,
    SessionClosed,
    Token,
    TurnFailed,
    answers,
)


class Unsupported(Exception):
    """The library has no such operation."""


class Log(logging.Handler):
    """A log whose warnings and errors are observations."""

    def __init__(self, runner: CaseRunner) -> None:
        super().__init__(logging.WARNING)
        self.runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "callback_id"):
            self.runner.observe("", "log", "")


class CaseRunner:
    def __init__(self, control: Callable[[str], Awaitable[None]]) -> None:
        self.control = control
        self.observations: list[pb.Observation] = []
        self.log = Log(self)
        self.gates: set[str] = set()
        self.changed = asyncio.Condition()
        self.loop = asyncio.get_running_loop()
        self.clients: dict[str, Client] = {}
        self.sessions: dict[str, Session] = {}
        self.background: dict[str, asyncio.Task[None]] = {}
        self.aborting: set[str] = set()

    async def run(self, case: pb.Case) -> pb.Result:
        self.endpoint = case.endpoint
        # Labels of the steps whose turn ends when they are cancelled: the library wants to know that when they begin.
        self.aborting = {s.cancel.step for s in case.steps if s.HasField("cancel") and s.cancel.abort_turn}
        results = [pb.StepResult() for _ in case.steps]
        for step, result in zip(case.steps, results, strict=True):
            task = asyncio.create_task(self.step(step, result))
            if step.background:
                self.background[step.background] = task
            else:
                await task
        for client in self.clients.values():
            await client.close()
        logging.getLogger("copilot_grpc").removeHandler(self.log)
        for task in self.background.values():
            task.cancel()
            await asyncio.wait([task])
        return pb.Result(name=case.name, steps=results, observations=self.observations)

    async def step(self, step: pb.Step, result: pb.StepResult) -> None:
        kind = str(step.WhichOneof("action"))
        try:
            await getattr(self, f"do_{kind}")(getattr(step, kind), result, step.background in self.aborting)
        except BaseException as error:
            result.error.CopyFrom(error_of(error))

    # Steps.

    async def do_connect(self, step: pb.Connect, result: pb.StepResult, abort: bool) -> None:
        endpoint, options = self.endpoint, {}
        if step.changing_token:
            numbers = itertools.count(1)
            options["token"] = Token.function(lambda: f"token-{next(numbers)}")
        elif step.token_file:
            options["token"] = Token.file(step.token_file)
        elif endpoint.token:
            options["token"] = endpoint.token
        if endpoint.ca_file:
            options["ca"] = endpoint.ca_file
        if step.observe_log:
            logging.getLogger("copilot_grpc").addHandler(self.log)
        give_up = step.give_up_after_ms / 1000 or 30.0
        reconnect = Reconnect(first=0.01, longest=0.1, give_up_after=give_up)
        self.clients[step.client] = await Client.connect(endpoint.target, reconnect=reconnect, **options)

    async def do_open(self, step: pb.Open, result: pb.StepResult, abort: bool) -> None:
        client = self.clients[step.client]
        session_id = self.sessions[step.id_of].id if step.id_of else step.id
        options = case_handlers.options(self, step)
        match step.how:
            case pb.Open.CREATE:
                if session_id:
                    options["session_id"] = session_id
                session = await client.create_session(**options)
            case pb.Open.RESUME:
                session = await client.resume_session(session_id, **options)
            case pb.Open.OPEN_OR_CREATE:
                session = await client.open_session(session_id, **options)
            case pb.Open.JOIN:
                session = await client.join_session(session_id, **options)
            case _:
                session = client.session(session_id)
        self.sessions[step.session] = session

    async def do_send(self, step: pb.Send, result: pb.StepResult, abort: bool) -> None:
        await self.sessions[step.session].send(step.text, **send_options(step))

    async def do_send_and_wait(self, step: pb.Send, result: pb.StepResult, abort: bool) -> None:
        options = send_options(step)
        if step.timeout_ms:
            options["timeout"] = step.timeout_ms / 1000
        session = self.sessions[step.session]
        note_outcome(result, await session.send_and_wait(step.text, abort_on_cancel=abort, **options))

    async def do_run(self, step: pb.Run, result: pb.StepResult, abort: bool) -> None:
        turn = self.sessions[step.session].run(step.text, abort_on_cancel=abort)
        if step.deltas:
            async for text in turn.deltas():
                result.text += text
        else:
            async for event in turn:
                if not step.types or event.type in step.types:
                    result.events.append(event_of(event))
        note_outcome(result, await turn.outcome())

    async def do_events(self, step: pb.Events, result: pb.StepResult, abort: bool) -> None:
        session = self.sessions[step.session]
        options: dict[str, Any] = {"types": list(step.types)} if step.types else {}
        start = {pb.Events.BEGINNING: "beginning", pb.Events.NOW: "now"}.get(step.__getattribute__("from"), "opened")
        stream = session.history(**options) if step.history else session.events(start=start, **options)
        async with stream:
            async for event in stream:
                result.events.append(event_of(event))
                if len(result.events) == step.pause_after:
                    await self.gate(self.observe(step.session, "events", ""), step.gate)
                elif len(result.events) == step.count:
                    break
                if step.until and event.type == step.until:
                    break

    async def do_abort(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        result.turn_was_running = await self.sessions[step.session].abort()

    async def do_cancel(self, step: pb.Cancel, result: pb.StepResult, abort: bool) -> None:
        self.background[step.step].cancel()

    async def do_await(self, step: pb.Await, result: pb.StepResult, abort: bool) -> None:
        await asyncio.wait([self.background[step.step]])

    async def do_await_observation(self, step: pb.AwaitObservation, result: pb.StepResult, abort: bool) -> None:
        def fits(o: pb.Observation) -> bool:
            return o.kind == step.kind and step.name in ("", o.name) and (o.withdrawn or not step.withdrawn)

        await self.until(lambda: sum(map(fits, self.observations)) >= step.count)

    async def do_release(self, step: pb.Release, result: pb.StepResult, abort: bool) -> None:
        self.gates.add(step.gate)
        await self.wake()

    async def do_resolve(self, step: pb.Resolve, result: pb.StepResult, abort: bool) -> None:
        session, callback_id = self.sessions[step.session], step.callback_id
        while not callback_id:
            callback_id = next((c.id for c in await session.pending()), "")
        if step.HasField("tool_text"):
            answer = answers.tool(step.tool_text)
        else:
            answer = answers.approve() if step.permission == "approve" else answers.reject()
        await session.resolve(callback_id, answer)

    async def do_get(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        result.text = (await self.sessions[step.session].get()).state.upper()

    async def do_list(self, step: pb.List, result: pb.StepResult, abort: bool) -> None:
        async for info in self.clients[step.client].list_sessions(labels=step.labels):
            result.sessions.extend(name for name, session in self.sessions.items() if session.id == info.id)
        result.sessions.sort()

    async def do_delete(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        await self.sessions[step.session].delete()

    async def do_disconnect(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        await self.sessions[step.session].disconnect()

    async def do_close(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        await self.sessions[step.session].close()

    async def do_set_tools(self, step: pb.SetTools, result: pb.StepResult, abort: bool) -> None:
        await self.sessions[step.session].set_tools(case_handlers.tools(self, step.session, step.tools))

    async def do_control(self, step: pb.Control, result: pb.StepResult, abort: bool) -> None:
        await self.control(step.name)

    async def do_watch(self, step: pb.Watch, result: pb.StepResult, abort: bool) -> None:
        seen = 0
        async with self.clients[step.client].watch_sessions() as changes:
            async for change in changes:
                seen += change.kind == step.change.lower()
                if seen == step.count:
                    return

    async def do_labels(self, step: pb.Labels, result: pb.StepResult, abort: bool) -> None:
        labels = await self.sessions[step.session].update_labels(dict(step.set), remove=list(step.remove))
        result.labels.update(labels)

    async def do_usage(self, step: pb.Usage, result: pb.StepResult, abort: bool) -> None:
        for row in await self.clients[step.client].usage(session_id=self.sessions[step.session].id):
            result.turns += row.turns
            result.requests += row.requests

    async def do_inbox(self, step: pb.Inbox, result: pb.StepResult, abort: bool) -> None:
        answer = answers.approve() if step.permission == "approve" else answers.reject()
        ended = 0
        async with self.clients[step.client].watch_pending(handle=True, labels=dict(step.labels)) as changes:
            async for change in changes:
                if isinstance(change, PendingCallback):
                    await change.answer(answer)
                    continue
                ended += 1
                if ended == step.count:
                    return

    async def do_await_end(self, step: pb.OfSession, result: pb.StepResult, abort: bool) -> None:
        raise await self.sessions[step.session].wait_ended()

    # What handlers use.

    def observe(self, session: str, kind: str, name: str, arguments_json: str = "") -> pb.Observation:
        """Records a call of a function."""
        observation = pb.Observation(session=session, kind=kind, name=name, arguments_json=arguments_json)
        self.observations.append(observation)
        self.loop.create_task(self.wake())
        return observation

    async def gate(self, observation: pb.Observation, name: str) -> None:
        """Waits at a gate, if there is one, or until the answer is not wanted any more."""
        if not name:
            return
        try:
            await self.until(lambda: name in self.gates)
        except asyncio.CancelledError:
            observation.withdrawn = True
            self.loop.create_task(self.wake())
            raise

    async def wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(holds)


def send_options(step: pb.Send) -> dict[str, Any]:
    attachments = [attachment_of(a) for a in step.attachments]
    return {"attachments": attachments, "immediate": step.immediate}


def attachment_of(a: pb.Attachment) -> Attachment:
    match a.WhichOneof("source"):
        case "path":
            return Attachment.path(a.path)
        case "stream":
            return Attachment.stream(io.BytesIO(a.stream), mime_type=a.mime_type, name=a.name)
    return Attachment.data(a.data, mime_type=a.mime_type, name=a.name)


def note_outcome(result: pb.StepResult, outcome: Outcome) -> None:
    result.outcome.CopyFrom(pb.Outcome(status=outcome.status.upper(), text=outcome.text))
    if outcome.error:
        result.outcome.error_type = outcome.error.error_type
    try:
        outcome.raise_for_status()
    except TurnFailed as error:
        result.outcome.error = str(error)


def event_of(event: Any) -> pb.Event:
    position = {"epoch": event.position.epoch, "seq": event.position.seq}
    if isinstance(event, Gap):
        return pb.Event(gap=event.reason.upper(), **position)
    return pb.Event(type=event.type, **position)


def error_of(error: BaseException) -> pb.Error:
    """Tells what kind of error it is."""
    if isinstance(error, asyncio.CancelledError):
        return pb.Error(kind=pb.Error.CANCELLED, message="cancelled")
    if isinstance(error, Unsupported):
        return pb.Error(kind=pb.Error.UNSUPPORTED, message=str(error))
    if isinstance(error, ServerIncompatible):
        return pb.Error(kind=pb.Error.INCOMPATIBLE, message=str(error))
    if isinstance(error, SessionClosed):
        if error.cause == "closed":
            return pb.Error(kind=pb.Error.CLOSED, message=str(error))
        return pb.Error(kind=pb.Error.SESSION_CLOSED, reason=error.cause.upper(), message=str(error))
    if isinstance(error, CopilotError):
        names = {"code": error.code, "reason": error.reason, "field": error.field}
        return pb.Error(kind=pb.Error.STATUS, message=str(error), **names)
    return pb.Error(kind=pb.Error.USAGE, message=repr(error))
