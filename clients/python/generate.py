"""Writes the package copilot_grpc, the API's stubs, from the .proto files.

protoc names Python modules after the folders of the .proto files, which would make a
top-level package `copilot`: that of GitHub's own SDK, which programs may well use too. So
the files are compiled from a copy in which the folder is called copilot_grpc. On the wire
everything keeps its name.
"""

import re
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent
PROTO = HERE.parent.parent / "proto"
PACKAGE = "copilot_grpc"


def main() -> int:
    shutil.rmtree(HERE / PACKAGE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for file in sorted((PROTO / "copilot").rglob("*.proto")):
            target = copy / PACKAGE / file.relative_to(PROTO / "copilot")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = file.read_text(encoding="utf-8")
            target.write_text(
                re.sub(r'^import "copilot/', f'import "{PACKAGE}/', text, flags=re.MULTILINE),
                encoding="utf-8",
            )
        return compile_all(copy)


def compile_all(source: Path) -> int:
    protos = [str(f.relative_to(source)) for f in sorted(source.rglob("*.proto"))]
    well_known = str(files("grpc_tools") / "_proto")
    # Messages with their types; services only where there are any.
    scripts = Path(sys.executable).parent
    messages: int = protoc.main([
        "protoc", f"-I{source}", f"-I{well_known}",
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--python_out={HERE}", f"--mypy_out=quiet:{HERE}", *protos,
    ])  # fmt: skip
    services = [p for p in protos if "\nservice " in (source / p).read_text(encoding="utf-8")]
    rest: int = protoc.main([
        "protoc", f"-I{source}", f"-I{well_known}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        f"--grpc_python_out={HERE}", f"--mypy_grpc_out=quiet:{HERE}", *services,
    ])  # fmt: skip
    return messages or rest


if __name__ == "__main__":
    sys.exit(main())
