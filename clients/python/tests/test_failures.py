"""What the model, the log and the program are told about failures."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from copilot_grpc import Client, HandlerError, Outcome, ToolError, TurnFailed, permission, tool
from copilot_grpc._handlers import Handlers
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.cli import v1 as cli
from copilot_grpc.errors import Unauthenticated

from .fake import Fake, connected, permission_callback, refuse, serve, soon, tool_callback


def fails(*_: Any) -> Any:
    raise RuntimeError("/home/secret")


@tool("weather")
def weather(city: str) -> str:
    return str(fails(city))


def of(kind: str, value: Any) -> bridge.Callback:
    return bridge.Callback(session_id="s1", callback_id="c", **{kind: value})


USER_INPUT = of("user_input", cli.CallbackUserInputServiceRequestRequest(question="Where?"))
COMMAND = of("command", cli.CommandExecuteData(command_name="deploy"))
HOOK = of("hook", cli.HookInvocation(session_start=cli.HookSessionStartInput()))
RAW = of("raw", bridge.RawCallback(method="new.thing", params_json="{}"))


@pytest.mark.parametrize(
    ("callback", "options", "name"),
    [
        (tool_callback("c", "weather", '{"city": "Paris"}'), {"tools": [weather]}, "tool weather"),
        (permission_callback("c"), {"on_permission": fails}, "on_permission"),
        (permission_callback("c"), {"on_permission": [permission.approve("write"), fails]}, "on_permission"),
        (USER_INPUT, {"on_user_input": fails}, "on_user_input"),
        (USER_INPUT, {"on_user_input": lambda request: 7}, "on_user_input"),
        (COMMAND, {"on_command": fails}, "on_command for deploy"),
        (HOOK, {"hooks": {"session_start": fails}}, "hook session_start"),
        (RAW, {"on_request": {"new.thing": fails}}, "on_request for new.thing"),
        (RAW, {"on_request": {"new.thing": lambda request: "x" * (16 << 20)}}, "on_request for new.thing"),
    ],
)
async def test_failures_of_handlers_are_logged(
    callback: bridge.Callback, options: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await Handlers(options, {}).answer(callback)
    if callback.HasField("tool_call"):
        assert answer.tool.result.text_result_for_llm == "The tool failed."
    elif callback.HasField("command"):
        assert answer.error.message == "/home/secret"  # for the caller of the command
    else:
        assert answer.error.message and "secret" not in answer.error.message
    [record] = caplog.records
    assert record.name == "copilot_grpc" and record.levelno == logging.WARNING and record.exc_info
    assert record.getMessage().startswith(f"{name} failed: ")
    assert record.getMessage().endswith("(session s1, callback c)")


@pytest.mark.parametrize(
    ("callback", "error", "text"),
    [
        (tool_callback("c", "weather", '{"city": "Paris"}'), ToolError("no forecast"), "no forecast"),
        (USER_INPUT, HandlerError("nobody is here"), "nobody is here"),
    ],
)
async def test_texts_of_the_programs_own_errors_are_passed_on(
    callback: bridge.Callback, error: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    @tool("weather")
    def failing(city: str) -> str:
        return str(fail(city))

    answer = await Handlers({"tools": [failing], "on_user_input": fail}, {}).answer(callback)
    assert text in (answer.tool.result.text_result_for_llm, answer.error.message)
    [record] = caplog.records
    assert text in record.getMessage() and record.levelno == logging.WARNING and not record.exc_info


async def test_wrong_arguments_are_the_models_mistake(caplog: pytest.LogCaptureFixture) -> None:
    answer = await Handlers({"tools": [weather]}, {}).answer(tool_callback("c", "weather", "{}"))
    assert answer.tool.result.text_result_for_llm == "The arguments do not fit: city: is missing."
    assert not caplog.records


def test_failures_are_seen_without_a_configuration() -> None:
    program = (
        "import asyncio\n"
        "from tests.test_failures import Handlers, tool_callback, weather\n"
        'callback = tool_callback("c", "weather", \'{"city": "Paris"}\')\n'
        'asyncio.run(Handlers({"tools": [weather]}, {}).answer(callback))\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("tool weather failed: RuntimeError: /home/secret (session s1, callback c)\nTraceback")


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
async def test_urls_are_refused(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = f"{scheme}://localhost:7443"
    with pytest.raises(ValueError, match="a target is host:port, unix:/path or dns:///"):
        await Client.connect(target)
    monkeypatch.setenv("COPILOT_GRPC_TARGET", target)
    with pytest.raises(ValueError, match="a target is host:port"):
        await Client.connect()


async def test_unauthenticated_names_option_and_variable() -> None:
    async def unauthenticated(request: Any, context: Any) -> None:
        import grpc

        await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "the token is missing")

    fake = Fake()
    fake.unary["GetServerInfo"] = unauthenticated
    async with serve(fake) as target:
        with pytest.raises(Unauthenticated, match=r"option token of Client\.connect, or set COPILOT_GRPC_TOKEN"):
            await Client.connect(target)


async def test_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from copilot_grpc import Token
    from copilot_grpc._channel import choose_token

    def chosen(target: str, token: str | Token | None = None) -> str:
        found = choose_token(target, token)
        return found.value() if found else ""

    assert chosen("localhost:1") == ""
    monkeypatch.setenv("COPILOT_GRPC_TOKEN", "variable")
    assert chosen("localhost:1") == "variable"
    assert chosen("unix:/s") == ""
    assert chosen("localhost:1", "mine") == chosen("localhost:1", Token.static("mine")) == "mine"


UNCAUGHT: list[tuple[str, Callable[[str], str], str]] = [
    (
        "no server",
        lambda folder: f"unix:{folder}/none",
        "copilot_grpc.errors.ServerNotFound: UNAVAILABLE: no server at",
    ),
    ("url", lambda folder: "http://localhost:1", "ValueError: target 'http://localhost:1' is a URL"),
]


@pytest.mark.parametrize(("target", "want"), [pytest.param(t, w, id=name) for name, t, w in UNCAUGHT])
def test_an_uncaught_error_is_short(tmp_path: Path, target: Callable[[str], str], want: str) -> None:
    program = (
        "import asyncio\nfrom copilot_grpc import Client\n"
        "async def main():\n    await Client.connect()\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "COPILOT_GRPC_TARGET": target(str(tmp_path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1  # not that of gRPC
    text = done.stderr[done.stderr.rindex("\n", 0, done.stderr.index(want)) :].strip()
    assert len(text.splitlines()) <= 2 and "AioRpcError" not in done.stderr


async def test_the_error_of_an_outcome_has_cause_and_remedy() -> None:
    message = "the CLI process was killed; send the prompt again"
    lost = bridge.TurnOutcome(
        status=bridge.TurnStatus.TURN_STATUS_RUNTIME_LOST, error=bridge.TurnError(message=message)
    )
    outcome = Outcome.of("m1", lost)
    with pytest.raises(TurnFailed) as caught:
        outcome.raise_for_status()
    assert str(caught.value) == f"the turn ended as runtime_lost: {message}"
    aborted = Outcome.of("m1", bridge.TurnOutcome(status=bridge.TurnStatus.TURN_STATUS_ABORTED))
    with pytest.raises(TurnFailed, match=r"^the turn ended as aborted$"):
        aborted.raise_for_status()


async def test_conflicts_show_what_the_server_says() -> None:
    import grpc

    async def conflict(requests: Any, context: Any) -> None:
        await refuse(
            context, grpc.StatusCode.ALREADY_EXISTS, "TOOL_NAME_CONFLICT", "tool weather is p1's, gone for 3 s"
        )

    async with connected() as (fake, client):
        fake.streams["Attach"] = conflict
        with pytest.raises(Exception, match="tool weather is p1's, gone for 3 s"):
            await soon(client.join_session("s1", tools=[weather]))
