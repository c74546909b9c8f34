"""The package as it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, metadata
from importlib.resources import files

import pytest

import copilot_grpc
from copilot_grpc import sync
from copilot_grpc.client import Client
from copilot_grpc.sync import Session as SyncSession


def installed(name: str) -> bool:
    return any(distribution.name == name for distribution in metadata.distributions())


def test_every_name_can_be_imported() -> None:
    for name in copilot_grpc.__all__:
        assert getattr(copilot_grpc, name) is not None, name
    assert set(copilot_grpc.__all__) <= set(dir(copilot_grpc))
    assert files("copilot_grpc").joinpath("py.typed").is_file()


def test_versions_agree() -> None:
    assert copilot_grpc.__version__ == metadata.version("copilot-grpc-client")


def test_the_import_loads_neither_grpc_nor_messages() -> None:
    program = (
        "import sys; from copilot_grpc import Client, Token, permission, sync, testing, tool\n"
        "heavy = [m for m in sys.modules if m.startswith('grpc') or m.endswith('_pb2') or m == 'pydantic']\n"
        "sys.exit(','.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_synchronous_face_is_complete() -> None:
    from copilot_grpc._session import Session

    internal = {"explained", "wait_ended", "abort_detached", "frames", "channel", "connection", "progress"}
    for whole, face in ((Client, sync.Client), (Session, SyncSession)):
        missing = {name for name in dir(whole) if not name.startswith("_")} - set(dir(face)) - internal
        assert not missing


def test_messages_are_found_by_name() -> None:
    from copilot_grpc.bridge import v1 as bridge
    from copilot_grpc.cli import v1 as cli

    for package in (bridge, cli):
        for name in package._MODULES:
            assert getattr(package, name) is not None
    try:
        bridge.NoSuchMessage  # type: ignore[attr-defined] # noqa: B018
    except AttributeError as error:
        assert "NoSuchMessage" in str(error)


@pytest.mark.skipif(not installed("copilot-grpc-cli"), reason="`make client-python` installs the extra")
def test_the_extra_has_the_services_of_the_cli() -> None:
    messages = import_module("copilot_grpc.cli.v1.session_plan_pb2")
    services = import_module("copilot_grpc.cli.v1.session_plan_pb2_grpc")
    assert messages.DESCRIPTOR.package == "copilot.cli.v1"
    assert hasattr(services, "SessionPlanServiceStub")
