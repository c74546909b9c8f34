"""Generates the stubs of the package from the .proto files of the repository.

    python generate.py         # src/copilot_grpc/{bridge,cli,json}: the core
    python generate.py --cli   # cli/src/copilot_grpc/cli/v1: the rest, for the extra "cli"
    python generate.py --check # generates the core again, and fails if that makes a difference

The core is copilot.bridge.v1 and every file that it imports. protoc names modules after the folders of the .proto
files, which would make a top-level package `copilot`. GitHub's SDK has that name, so protoc compiles copies in a folder
`copilot_grpc`. Names on the wire stay the same. setup.py runs this script before each build from a checkout.
"""

import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"
PACKAGE = "copilot_grpc"
CORE = HERE / "src" / PACKAGE
EXTRA = HERE / "cli" / "src" / PACKAGE
PARTS = ("bridge", "cli", "json")
IMPORT = re.compile(r'^import (?:public )?"(copilot/[^"]+)"', re.MULTILINE)
# Top-level declarations; a name with an underscore first would not be exported.
DECLARATION = re.compile(r"^(?:message|enum) ([A-Za-z]\w*) \{", re.MULTILINE)
INDEX = '''"""Messages and enums of {package}, loaded when they are first used."""

from importlib import import_module
from typing import Any

_MODULES = {modules}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    value = getattr(import_module(f"{{__name__}}.{{module}}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({{*globals(), *_MODULES}})
'''


def closure() -> list[str]:
    """The files of copilot.bridge.v1 and those that they import, directly or not."""
    found: set[str] = set()
    unread = [str(f.relative_to(PROTO)) for f in (PROTO / "copilot/bridge/v1").glob("*.proto")]
    while unread:
        name = unread.pop()
        if name not in found:
            found.add(name)
            unread += IMPORT.findall(read(PROTO / name))
    return sorted(found)


def read(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


def stubs(cli: bool) -> tuple[list[str], list[str]]:
    """The files whose messages, and those whose services, are part of the package."""
    core = closure()
    everything = sorted(str(f.relative_to(PROTO)) for f in (PROTO / "copilot/cli/v1").glob("*.proto"))
    messages = [f for f in everything if f not in core] if cli else core
    services = everything if cli else [f for f in core if f.startswith("copilot/bridge/")]
    return messages, [f for f in services if "\nservice " in read(PROTO / f)]


def stamp(messages: list[str], services: list[str]) -> str:
    """A digest of everything that determines the stubs."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for tool in ("grpcio-tools", "mypy-protobuf"):
        digest.update(f"{tool} {metadata.version(tool)}\n".encode())
    digest.update(json.dumps([messages, services]).encode())
    for name in sorted({*messages, *services}):
        digest.update((PROTO / name).read_bytes())
    return digest.hexdigest()


def generate(cli: bool) -> None:
    """Generates the stubs, unless they are of these .proto files already."""
    target = EXTRA if cli else CORE
    mark = target / ".stubs"
    digest = stamp(*stubs(cli))
    if mark.exists() and read(mark) == digest:
        return
    with tempfile.TemporaryDirectory() as folder:
        made = make(cli, Path(folder))
        for part in PARTS:
            shutil.rmtree(target / part, ignore_errors=True)
        shutil.copytree(made, target, dirs_exist_ok=True)
    mark.write_text(digest, encoding="utf-8")


def check() -> None:
    """Generates the core again and fails if the result differs."""
    generate(cli=False)
    with tempfile.TemporaryDirectory() as folder:
        made = make(False, Path(folder))
        for root, other in ((made, CORE), (CORE, made)):
            for file in (f for part in PARTS for f in (root / part).rglob("*.py*") if f.suffix != ".pyc"):
                twin = other / file.relative_to(root)
                if not twin.exists() or twin.read_bytes() != file.read_bytes():
                    raise SystemExit(f"generating makes a difference: {file.relative_to(root)}")


def make(cli: bool, folder: Path) -> Path:
    """Generates the stubs in a folder; returns the folder of the package in it."""
    messages, services = stubs(cli)
    source, out = folder / "proto", folder / "out"
    out.mkdir()
    copy_sources(source)
    compile_stubs(source, out, messages, services)
    if not cli:
        for package in sorted({Path(f).parent for f in messages}):
            write_index(package, messages, out)
    return out / PACKAGE


def copy_sources(target: Path) -> None:
    """Copies the .proto files into the folder copilot_grpc, with their imports."""
    for file in (PROTO / "copilot").rglob("*.proto"):
        copy = target / renamed(str(file.relative_to(PROTO)))
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(r'^import (public )?"copilot/', rf'import \1"{PACKAGE}/', read(file), flags=re.MULTILINE)
        copy.write_text(text, encoding="utf-8")


def renamed(name: str) -> str:
    """The path of a file in the copy."""
    return name.replace("copilot/", f"{PACKAGE}/", 1)


def compile_stubs(source: Path, out: Path, messages: list[str], services: list[str]) -> None:
    """Runs protoc for messages with their types, and for services."""
    from grpc_tools import protoc

    include = [f"-I{source}", f"-I{files('grpc_tools') / '_proto'}"]
    run(protoc.main, [
        *include, f"--plugin=protoc-gen-mypy={script('protoc-gen-mypy')}",
        f"--python_out={out}", f"--mypy_out=quiet:{out}", *map(renamed, messages),
    ])  # fmt: skip
    run(protoc.main, [
        *include, f"--plugin=protoc-gen-mypy_grpc={script('protoc-gen-mypy_grpc')}",
        f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", *map(renamed, services),
    ])  # fmt: skip


def run(main: Callable[[list[str]], int], arguments: list[str]) -> None:
    """Runs protoc in this process."""
    if status := main(["protoc", *arguments]):
        raise SystemExit(f"protoc failed with status {status}")


def script(name: str) -> str:
    """A program that a build requirement installed."""
    for folder in [*map(Path, sys.path), Path(sys.executable).parent]:
        # An isolated build has its programs beside its site-packages: PREFIX/lib/python3.x/site-packages.
        for candidate in (folder / name, *(parent / "bin" / name for parent in folder.parents)):
            if candidate.is_file():
                return str(candidate)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: pip install mypy-protobuf")
    return found


def write_index(package: Path, messages: list[str], out: Path) -> None:
    """Writes the package's __init__, which finds each message without loading all modules."""
    modules = {}
    for name in messages:
        if Path(name).parent == package:
            module = Path(name).stem + "_pb2"
            modules.update(dict.fromkeys(DECLARATION.findall(read(PROTO / name)), module))
    modules = dict(sorted(modules.items()))
    folder = out / renamed(str(package))
    lines = ",\n".join(f'    "{name}": "{module}"' for name, module in modules.items())
    text = INDEX.format(package=".".join(package.parts), modules=f"{{\n{lines},\n}}")
    (folder / "__init__.py").write_text(text, encoding="utf-8")
    exports = [f"from .{module} import {name} as {name}" for name, module in modules.items()]
    (folder / "__init__.pyi").write_text("\n".join(exports) + "\n", encoding="utf-8")
    (folder.parent / "__init__.py").write_text("", encoding="utf-8")


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        check()
    else:
        generate(cli="--cli" in sys.argv[1:])
