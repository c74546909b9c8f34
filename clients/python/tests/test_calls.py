"""Unary calls, errors, connections, tokens and versions."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from copilot_grpc import Client, Position, Reconnect, ServerIncompatible, ServerNotFound, Token, answers
from copilot_grpc import _channel as channel
from copilot_grpc.bridge import v1 as bridge
from copilot_grpc.bridge.v1.runtime_service_pb2_grpc import add_RuntimeServiceServicer_to_server
from copilot_grpc.errors import CopilotError, DeadlineExceeded, InvalidField, LimitExceeded, Unauthenticated

from .fake import QUICKLY, Fake, connected, position, refuse, serve


async def test_send_is_repeated_with_its_request_id() -> None:
    seen: list[str] = []

    async def send(request: bridge.SendRequest, context: Any) -> bridge.SendResponse:
        seen.append(request.request_id)
        if len(seen) == 1:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "RUNTIME_LOST", "away", retry=0.01)
        context.set_trailing_metadata((("copilot-position", "1/8"),))
        return bridge.SendResponse(message_id="m", position=position(1, 5))

    async with connected() as (fake, client):
        fake.unary["Send"] = send
        session = client.session("s1")
        receipt = await session.send("Hello")
        assert len(seen) == 2 and seen[0] == seen[1] != ""
        assert receipt.message_id == "m" and receipt.position == Position(1, 5)
        assert session.position == Position(1, 8)


async def test_send_and_wait_survives_a_broken_connection() -> None:
    seen: list[bridge.SendAndWaitRequest] = []

    async def wait(request: bridge.SendAndWaitRequest, context: Any) -> bridge.SendAndWaitResponse:
        seen.append(request)
        if len(seen) < 3:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        status = bridge.TurnStatus.TURN_STATUS_TIMED_OUT
        return bridge.SendAndWaitResponse(message_id="m", outcome=bridge.TurnOutcome(status=status))

    async with connected() as (fake, client):
        fake.unary["SendAndWait"] = wait
        outcome = await client.session("s1").send_and_wait("Hello", timeout=7, idle_timeout=3)
        assert outcome.status == "timed_out" and outcome.end_position is None
        assert seen[0] == seen[2] and seen[0].timeout.seconds == 7 and seen[0].idle_timeout.seconds == 3


async def test_archives_are_read_and_sent_in_chunks() -> None:
    async with connected() as (fake, client):
        text = bytes(range(256)) * 1025
        header = bridge.ExportSessionHeader(size_bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
        fake.exports = [
            bridge.ExportSessionResponse(header=header),
            bridge.ExportSessionResponse(chunk=text[:1000]),
            bridge.ExportSessionResponse(chunk=text[1000:]),
        ]
        archive = io.BytesIO()
        assert await client.export_session("s1", archive) == header and archive.getvalue() == text
        archive.seek(0)
        made = await client.import_session(archive, session_id="s2", provider_ref="p")
        first, *rest = fake.imports
        assert made.origin_session_id == "s1" and first.header.session_id == "s2" and first.header.provider_ref == "p"
        assert [len(piece.chunk) for piece in rest] == [256 << 10, 256] and b"".join(p.chunk for p in rest) == text
        fake.exports.pop()
        with pytest.raises(CopilotError, match="cut off") as damaged:
            await client.export_session("s1", io.BytesIO())
        assert damaged.value.code == "DATA_LOSS"


async def test_refusals_are_not_repeated() -> None:
    calls = 0

    async def send(request: Any, context: Any) -> Any:
        nonlocal calls
        calls += 1
        await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", "full", retry=2.5)

    async with connected() as (fake, client):
        fake.unary["Send"] = send
        with pytest.raises(LimitExceeded) as caught:
            await client.session("s1").send("Hello")
        error = caught.value
        assert (calls, error.code, error.retry_after) == (1, "RESOURCE_EXHAUSTED", 2.5)
        assert error.metadata == {"session_id": "s1"}
        assert error.__cause__ is None and error.__suppress_context__  # a traceback shows only this error


async def test_reasons_of_trailers_and_newer_servers() -> None:
    async def trailers(request: Any, context: Any) -> None:
        context.set_trailing_metadata((("copilot-reason", "INVALID_FIELD"), ("copilot-field", "prompt.text")))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad")

    async def newer(request: Any, context: Any) -> None:
        await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "BRAND_NEW", "what")

    async with connected() as (fake, client):
        fake.unary["GetSession"] = trailers
        with pytest.raises(InvalidField) as invalid:
            await client.get_session("s1")
        assert invalid.value.field == "prompt.text"
        assert str(invalid.value) == "INVALID_ARGUMENT INVALID_FIELD (field 'prompt.text'): bad"
        fake.unary["GetSession"] = newer
        with pytest.raises(CopilotError) as unknown:
            await client.get_session("s1")
        assert type(unknown.value) is CopilotError and unknown.value.reason == "BRAND_NEW"


async def test_deadlines() -> None:
    async with connected(timeout=0.05) as (fake, client):
        fake.unary["GetSession"] = lambda request, context: asyncio.sleep(60)
        with pytest.raises(DeadlineExceeded):
            await client.get_session("s1")


def test_every_reason_has_a_class() -> None:
    names = {name.removeprefix("ERROR_REASON_") for name in bridge.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118
    assert set(CopilotError._classes) == names


async def test_wrong_servers() -> None:
    fake = Fake()
    async with serve(fake) as target:
        for version in ("1.0.0", "v2.3.4-rc.1", "0.0.9"):
            fake.unary["GetServerInfo"] = lambda *_, version=version: bridge.GetServerInfoResponse(version=version)
            with pytest.raises(ServerIncompatible, match=rf"version {version}; this library works with 0\.1"):
                await Client.connect(target)
        for version in ("0.1.0", "0.99.1", "402c0c1", "devel"):
            fake.unary["GetServerInfo"] = lambda *_, version=version: bridge.GetServerInfoResponse(version=version)
            async with Client.connect(target) as client:
                assert (await client.server_info()).version == version
        del fake.unary["GetServerInfo"]
        with pytest.raises(ServerIncompatible, match="no copilot-grpc"):
            await Client.connect(target)


async def test_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound, match="copilot-grpc serve"):
        await Client.connect(f"unix:{tmp_path}/none.sock", connect_timeout=5)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("COPILOT_GRPC_TARGET", raising=False)
    with pytest.raises(ServerNotFound, match="not on PATH"):
        await Client.connect(binary="no-such-binary")
    with pytest.raises(ServerNotFound, match="no server at unix:"):
        await Client.connect(launch=False, connect_timeout=5)
    with pytest.raises(ServerNotFound, match="did not start"):
        await Client.connect(launch=True, binary="false")
    with pytest.raises(ValueError, match="either a target"):
        await Client.connect("unix:/x", launch=True)
    monkeypatch.setenv("COPILOT_GRPC_TARGET", f"unix:{tmp_path}/other.sock")
    with pytest.raises(ServerNotFound, match=r"other\.sock"):
        await Client.connect(connect_timeout=5)


def test_local_targets() -> None:
    for target in (
        "unix:/x",
        "unix-abstract:x",
        "localhost:1",
        "127.0.0.1:1",
        "[::1]:1",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1",
    ):
        assert channel.is_local(target), target
    for target in ("example.com:1", "10.0.0.1:1", "[2001:db8::1]:1", "dns:///example.com:443", "localhost.example:1"):
        assert not channel.is_local(target), target


async def test_contradictions_of_credentials() -> None:
    with pytest.raises(ValueError, match="belong together"):
        channel.open_channel("h:1", certificate=b"x")
    with pytest.raises(ValueError, match="needs TLS"):
        channel.open_channel("example.com:1", insecure=True, token=Token.static("t"))


def with_token(fake: Fake, tokens: list[str]) -> None:
    """Makes the server note the tokens of calls, and refuse the token "old"."""

    async def info(request: Any, context: Any) -> Any:
        given = dict(context.invocation_metadata()).get("authorization", "")
        tokens.append(given)
        if given == "Bearer old":
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", "expired")
        return bridge.GetServerInfoResponse(version="0.1.0")

    fake.unary["GetServerInfo"] = info


async def test_tokens(tmp_path: Path) -> None:
    fake, seen = Fake(), list[str]()
    with_token(fake, seen)
    server = grpc.aio.server()
    add_RuntimeServiceServicer_to_server(fake, server)  # type: ignore[arg-type]
    port = server.add_secure_port("127.0.0.1:0", grpc.local_server_credentials(grpc.LocalConnectionType.LOCAL_TCP))
    await server.start()
    try:
        file = tmp_path / "token"
        file.write_text("first\n")
        target = f"127.0.0.1:{port}"
        async with Client.connect(target, token="fixed") as client:
            await client.server_info()
        async with Client.connect(target, token=Token.file(file)) as client:
            file.write_text("second")
            os.utime(file, (1, 1))
            await client.server_info()
        counter = iter("abc")
        async with Client.connect(target, token=Token.function(lambda: next(counter))) as client:
            await client.server_info()
        with pytest.raises(Unauthenticated, match="expired"):
            await Client.connect(target, token="old")
    finally:
        await server.stop(None)
    assert [token.removeprefix("Bearer ") for token in seen] == ["fixed", "fixed", "first", "second", "a", "b", "old"]


def test_changed_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    token = Token.file(file)
    assert token.value() == "one"
    file.write_text("two")
    os.utime(file, (1, 1))
    assert token.value() == "two"
    assert Token.static("x").value() == "x"


async def test_resolve_and_lists() -> None:
    resolved: list[bridge.ResolveRequest] = []

    async with connected() as (fake, client):

        def resolve(request: bridge.ResolveRequest, context: Any) -> bridge.ResolveResponse:
            resolved.append(request)
            return bridge.ResolveResponse()

        fake.unary["Resolve"] = resolve
        await client.session("s1").resolve("c", answers.approve())
        assert resolved[0].answer.HasField("approve") and resolved[0].request_id

        def pages(request: Any, context: Any) -> Any:
            token = "" if request.page_token else "next"
            session = bridge.Session(session_id=request.page_token or "first")
            return bridge.ListSessionsResponse(sessions=[session], next_page_token=token)

        fake.unary["ListSessions"] = pages
        assert [session.id async for session in client.list_sessions()] == ["first", "next"]


async def test_handles_have_no_tools() -> None:
    async with connected() as (_, client):
        with pytest.raises(ValueError, match="join the session"):
            await client.session("s1").set_tools([])


async def test_the_library_logs_broken_streams(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="copilot_grpc")
    async with connected(reconnect=QUICKLY) as (fake, client):
        opening = asyncio.ensure_future(client.create_session())
        stream = await fake.attached()
        await opening
        stream.end(grpc.StatusCode.UNAVAILABLE)
        await fake.attached()
        while not any("restored" in message for message in caplog.messages):
            await asyncio.sleep(0)
    assert any("broken" in message for message in caplog.messages)


async def test_reconnection_gives_up() -> None:
    async with connected(reconnect=Reconnect(give_up_after=0)) as (fake, client):
        opening = asyncio.ensure_future(client.create_session())
        stream = await fake.attached()
        session = await opening
        stream.end(grpc.StatusCode.UNAVAILABLE, "cut off")
        assert "cut off" in str(await session.wait_ended())


def certificates(folder: Path) -> None:
    """Makes a CA with the certificates of a server and of a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text("subjectAltName=DNS:agents.example")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
async def test_tls_and_client_certificates(tmp_path: Path) -> None:
    certificates(tmp_path)
    files = {name: (tmp_path / name).read_bytes() for name in ("ca.pem", "server.pem", "server.key")}
    pair = [(files["server.key"], files["server.pem"])]
    fake, server = Fake(), grpc.aio.server()
    add_RuntimeServiceServicer_to_server(fake, server)  # type: ignore[arg-type]
    open_to_all = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair))
    mutual = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials(pair, files["ca.pem"], require_client_auth=True)
    )
    await server.start()
    try:
        options: dict[str, Any] = {"ca": tmp_path / "ca.pem", "server_name": "agents.example", "connect_timeout": 30}
        async with Client.connect(f"127.0.0.1:{open_to_all}", token="secret", **options) as client:
            assert (await client.server_info()).version == "0.1.0"
        own: dict[str, Any] = {"certificate": tmp_path / "client.pem", "key": (tmp_path / "client.key").read_bytes()}
        async with Client.connect(f"127.0.0.1:{mutual}", **options, **own) as client:
            assert (await client.server_info()).version == "0.1.0"
        with pytest.raises(ServerNotFound):
            await Client.connect(f"127.0.0.1:{mutual}", **options)
        with pytest.raises(ServerNotFound):
            await Client.connect(f"127.0.0.1:{open_to_all}", **{**options, "server_name": "other.example"})
    finally:
        await server.stop(None)
