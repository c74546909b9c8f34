"""Sessions of the real CLI with a scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from copilot_grpc import (
    Attachment,
    Client,
    Outcome,
    Reconnect,
    ToolError,
    ToolResult,
    TurnFailed,
    permission,
    sync,
    tool,
)
from copilot_grpc.errors import SessionExists, SessionNotFound
from copilot_grpc.testing import Server, call, reply, say, text, tool_call, wait_for

from .fake import soon

SCRIPT = [
    *call("get_weather", when={"user": "weather"}, city="Paris", then="The tool says: {{tool_result}}"),
    *call("get_weather", when={"user": "bad arguments"}, place="Paris", then="The tool says: {{tool_result}}"),
    reply(text("First. "), wait_for("gate"), text("Second."), when={"user": "slowly"}),
    reply(tool_call("ask_user", question="Which city?", choices=["Paris", "Rome"]), when={"user": "ask me"}),
    say("You chose: {{tool_result}}", when={"tool_result": {"name": "ask_user"}}),
    reply(tool_call("bash", command="echo hi", description="greets"), when={"user": "shell"}),
    say("Shell: {{tool_result}}", when={"tool_result": {"name": "bash"}}),
    say("table: {{user}}", when={"user": "compare"}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(SCRIPT) as running:
        yield running


@tool
async def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"rain in {city}"


async def test_a_turn_with_a_tool_and_a_permission(server: Server) -> None:
    kinds = []

    def decide(request: permission.PermissionRequest) -> bool:
        kinds.append(request.kind)
        return True

    async with Client.connect(server.target) as client:
        async with client.create_session(tools=[get_weather], on_permission=decide) as session:
            outcome = await session.send_and_wait("What is the weather?")
            assert outcome == Outcome(
                "completed", "The tool says: rain in Paris", outcome.message_id, None,
                outcome.message_position, outcome.end_position,
            )  # fmt: skip
            assert kinds == ["custom-tool"]
            history = [event.type async for event in session.history(types=["external_tool.*"])]
            assert history == ["external_tool.requested", "external_tool.completed"]
            assert session.position is not None and outcome.end_position is not None
            assert session.position >= outcome.end_position
            await session.delete()
        with pytest.raises(SessionNotFound):
            await client.get_session(session.id)


async def test_wrong_arguments_are_answered_in_words(server: Server) -> None:
    async with Client.connect(server.target) as client:
        async with client.create_session(tools=[get_weather], on_permission=permission.approve_all) as session:
            outcome = await session.send_and_wait("bad arguments")
            assert "place: is unknown; city: is missing" in outcome.text


@pytest.mark.parametrize(
    ("result", "want"),
    [
        (ToolResult.failure("no such city"), "no such city"),
        (ToolError("closed"), "closed"),
        (ValueError("/secret/path"), ""),
        ({"sky": "grey"}, '{"sky": "grey"}'),
        (None, "Done."),
    ],
)
async def test_what_the_model_reads_of_a_result(server: Server, result: object, want: str) -> None:
    @tool("get_weather")
    async def weather(city: str) -> object:
        """Tells the weather."""
        if isinstance(result, Exception):
            raise result
        return result

    async with Client.connect(server.target) as client:
        async with client.create_session(tools=[weather], on_permission=permission.approve_all) as session:
            answer = (await session.send_and_wait("weather")).text
            assert want in answer and "/secret" not in answer and "Traceback" not in answer


async def test_deltas_arrive_before_the_end(server: Server) -> None:
    async with Client.connect(server.target) as client:
        async with client.create_session(streaming=True) as session:
            turn, seen = session.run("slowly"), ""
            async for piece in turn.deltas():
                seen += piece
                if seen == "First. ":
                    await asyncio.to_thread(server.release, "gate")
            assert seen == "First. Second."
            assert (await turn).text == "First. Second."


async def test_cancelled_wait_leaves_the_turn_or_aborts_it(server: Server) -> None:
    async with Client.connect(server.target) as client:
        async with client.create_session() as session:
            for abort in (False, True):
                events = session.events(after=session.position, types=["assistant.turn_start"])
                waiting = asyncio.ensure_future(session.send_and_wait("slowly", abort_on_cancel=abort))
                async with events:
                    async for event in events:
                        if event.type == "assistant.turn_start":
                            break
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                while abort and (await session.get()).proto.turn_running:
                    await asyncio.sleep(0.01)  # the CLI ends the turn a little later
                assert (await session.get()).proto.turn_running != abort
                await session.abort()


async def test_permission_rules(server: Server) -> None:
    async with Client.connect(server.target) as client:
        rules = [permission.approve("read"), permission.reject("shell", feedback="No shell here.")]
        async with client.create_session(on_permission=rules) as session:
            assert "No shell here." in (await session.send_and_wait("shell")).text


async def test_approval_for_the_session_asks_once(server: Server) -> None:
    asked = 0

    def decide(request: permission.PermissionRequest) -> permission.Decision:
        nonlocal asked
        asked += 1
        return request.approve_for_session()

    async with Client.connect(server.target) as client:
        async with client.create_session(tools=[get_weather], on_permission=decide) as session:
            for _ in range(2):
                await session.send_and_wait("weather")
            assert asked == 1


async def test_user_input(server: Server) -> None:
    async with Client.connect(server.target) as client:
        async with client.create_session(on_user_input=lambda question: question.choices[1]) as session:
            assert "Rome" in (await session.send_and_wait("ask me")).text


async def test_hooks(server: Server) -> None:
    from copilot_grpc.cli.v1 import HookPermissionDecision, HookPreToolUseInput, HookPreToolUseOutput

    def deny(hook: HookPreToolUseInput) -> HookPreToolUseOutput:
        decision = HookPermissionDecision.HOOK_PERMISSION_DECISION_DENY
        return HookPreToolUseOutput(permission_decision=decision, permission_decision_reason=f"no {hook.tool_name}")

    async with Client.connect(server.target) as client:
        async with client.create_session(hooks={"pre_tool_use": deny}, on_permission=permission.approve_all) as session:
            assert "no bash" in (await session.send_and_wait("shell")).text


async def test_attachments(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("remember the milk")

    async def stream() -> object:
        yield b"a,b\n"

    async with Client.connect(server.target) as client:
        async with client.create_session() as session:
            receipt = await session.send(
                "compare these",
                attachments=[
                    Attachment.path(file),
                    Attachment.data(b"x" * (2 << 20), mime_type="application/octet-stream", name="big"),
                    Attachment.stream(stream(), mime_type="text/csv", name="table.csv"),  # type: ignore[arg-type]
                ],
            )
            assert receipt.message_id
            async for event in session.events(types=["user.message"]):
                kinds = [item.WhichOneof("variant") for item in event.data.attachments]
                assert kinds == ["file", "blob", "blob"]
                break


async def test_two_participants_and_a_resumed_session(server: Server) -> None:
    async with Client.connect(server.target) as client:
        async with client.create_session(session_id="shared-1") as first:
            with pytest.raises(SessionExists):
                await client.create_session(session_id="shared-1")
            async with client.join_session(first.id, tools=[get_weather], on_permission=permission.approve_all):
                assert (await first.send_and_wait("weather")).text == "The tool says: rain in Paris"
            assert [p.participant_id for p in (await first.get()).proto.participants] == [first.participant_id]
            await first.disconnect()
        async with client.resume_session("shared-1", tools=[get_weather]) as again:
            assert "session.start" in [event.type async for event in again.history(types=["session.*"])]
        assert "shared-1" in [session.id async for session in client.list_sessions()]
        await client.delete_session("shared-1")


async def test_answers_by_id(server: Server) -> None:
    from copilot_grpc import answers
    from copilot_grpc.bridge.v1 import Handlers

    async with Client.connect(server.target) as client:
        handlers = Handlers(permission=True)
        async with client.create_session(session_handlers=handlers, tools=[get_weather]) as session:
            waiting = asyncio.ensure_future(session.send_and_wait("weather"))
            async for event in session.events(types=["permission.requested"]):
                await session.resolve(event.data.request_id, answers.approve())
                break
            assert (await waiting).text == "The tool says: rain in Paris"


async def test_failed_turn_is_an_outcome() -> None:
    with Server({"rules": []}) as server:
        async with Client.connect(server.target) as client:
            async with client.create_session() as session:
                outcome = await session.send_and_wait("anything")
                assert outcome.status == "failed" and outcome.error is not None and not outcome.ok
                with pytest.raises(TurnFailed):
                    outcome.raise_for_status()


async def test_restarted_server_loses_nothing() -> None:
    runs = 0

    @tool("get_weather")
    async def count(city: str) -> str:
        """Tells the weather."""
        nonlocal runs
        runs += 1
        return f"run {runs}"

    async with Server(SCRIPT) as server:
        policy = Reconnect(first=0.05, longest=0.5)
        async with Client.connect(server.target, reconnect=policy) as client:
            async with client.create_session(tools=[count], on_permission=permission.approve_all) as session:
                assert (await session.send_and_wait("weather")).text == "The tool says: run 1"
                positions = []

                async def watch() -> None:
                    async for event in session.events(start="beginning", types=["assistant.message"]):
                        positions.append(event.position)
                        if len(positions) == 4:  # two of each turn
                            return

                watching = asyncio.ensure_future(watch())
                await server.restart()
                assert (await session.send_and_wait("weather")).text == "The tool says: run 2"
                await soon(watching)
                assert positions == sorted(set(positions)) and runs == 2


async def test_private_server_ends_with_its_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # no server there
    monkeypatch.delenv("COPILOT_GRPC_TARGET", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the parent of the default data directory
    arguments = ["--offline-model", "default", "--no-login", "--home", str(tmp_path / "home")]
    async with Client.connect(server_args=arguments) as client, Client.connect(server_args=arguments) as other:
        assert (await client.server_info()).capabilities.offline_model
        assert (await other.server_info()).capabilities.offline_model
        process = client._server
        assert process is not None and process._process is not None
        pid = process._process.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_without_asyncio(server: Server) -> None:
    calls: list[str] = []

    @tool("get_weather")
    def weather(city: str) -> str:
        """Tells the weather."""
        calls.append(client.get_session(session.id).id)  # a handler may call the client
        return f"sun in {city}"

    with sync.Client.connect(server.target) as client:
        with client.create_session(tools=[weather], on_permission=permission.approve_all) as session:
            assert session.send_and_wait("weather").text == "The tool says: sun in Paris"
            assert calls == [session.id]
            turn = session.run("weather")
            types = [event.type for event in turn]
            assert "external_tool.completed" in types and turn.outcome().ok
            assert list(session.run("Hello").deltas()) == ["You said: Hello"]
            with session.events(start="beginning") as events:
                assert next(events).type == "session.start"
            session.delete()
            with pytest.raises(SessionNotFound):
                client.get_session(session.id)
