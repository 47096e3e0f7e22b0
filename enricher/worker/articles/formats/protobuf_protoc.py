"""Compiles the text of Protobuf schemas with protoc, in another process.

The text comes from strangers, and protoc is a compiler in C++. So it runs with limits of time, processor time, memory and
the size of files, in a folder that contains nothing but the schema's files, without any plugin, and without our environment,
which holds secrets. The names that it gets were checked, and its output only becomes the text of an error, shortened.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from enricher.worker.articles.formats.decoder_limits import Foreign, unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT_FILE = "enricher.article.schema.proto"
"""The name of the schema's own file, which has none in a registry."""

_TIMEOUT_S = 30.0
_PROCESSOR_S = 15
_MEMORY_BYTES = 1 << 30
_OUTPUT_BYTES = 64 << 20
_KILLED = -9
"""The exit status after SIGKILL, which none of our limits sends."""
_NAME = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
_MAX_NAME_CHARS = 250
_PROGRAM = f"""
import sys
try:
    import resource
except ImportError:
    pass  # Windows: only the time is limited
else:
    for name, limit in (("AS", {_MEMORY_BYTES}), ("CPU", {_PROCESSOR_S}), ("FSIZE", {_OUTPUT_BYTES}), ("CORE", 0)):
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        try:
            resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        except (ValueError, OSError):
            pass  # macOS has no limit of address space
sys.path.append(sys.argv[1])
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[2:]]))
"""
_ENVIRONMENT = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if sys.platform == "win32" else {}
"""Empty, except for what Python needs to start on Windows."""


def compile_text(text: str, references: Mapping[str, str], known: Foreign) -> Foreign:
    """The `FileDescriptorSet` of a schema's text and of all files that it imports, dependencies first.

    `references`: texts by the names that import them. `known`: a `FileDescriptorSet` that may be imported too. Blocks for
    up to half a minute. Raises InvalidArticle; TimeoutError if the time was not enough or the process was killed, and other
    OSErrors if this machine cannot write files or start a process.
    """
    with TemporaryDirectory(prefix="enricher-protoc-") as folder:
        place = Path(folder)
        sources = place / "sources"
        for name, source in {**references, ROOT_FILE: text}.items():
            check_name(name)
            path = sources / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(source, "utf-8")
            except (FileExistsError, IsADirectoryError, NotADirectoryError, UnicodeEncodeError) as error:
                raise unusable("Protobuf", f"a reference cannot be written as a file: {type(error).__name__}") from None
        _run(place, sources, known)
        return _read(place / "out")


def check_name(name: str) -> None:
    """Raise InvalidArticle for a name that is no safe path: the names of references become paths below our folder."""
    parts = name.split("/")
    if (
        len(name) > _MAX_NAME_CHARS
        or not _NAME.fullmatch(name)
        or {".", ".."} & set(parts)
        or not name.endswith(".proto")
    ):
        raise unusable("Protobuf", "the name of a reference is not a relative path to a .proto file without `..`")


def _run(place: Path, sources: Path, known: Foreign) -> None:
    (place / "known").write_bytes(known.SerializeToString())
    command = [
        sys.executable, "-IS", "-c", _PROGRAM, _folder_of_compiler(), f"--proto_path={sources}",
        f"--descriptor_set_in={place / 'known'}", "--include_imports", f"--descriptor_set_out={place / 'out'}", ROOT_FILE,
    ]  # fmt: skip
    try:
        with (place / "errors").open("wb") as errors:
            done = subprocess.run(  # noqa: S603  our own program, names that were checked
                command, cwd=place, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"protoc took more than {_TIMEOUT_S:.0f} s") from None
    if done.returncode == _KILLED:
        raise TimeoutError("protoc was killed; perhaps memory was short")
    if done.returncode < 0:
        raise unusable(
            "Protobuf", f"protoc ended with signal {-done.returncode}: it is nested too deeply, or too large"
        )
    if done.returncode:
        reason = (place / "errors").read_bytes()[:2_000].decode("utf-8", "replace")
        raise unusable("Protobuf", reason.replace(f"{sources}/", "").replace(ROOT_FILE, "schema"))


def _folder_of_compiler() -> str:
    """The folder of packages that has the compiler: ours may come from PYTHONPATH, which the child does not have."""
    found = find_spec("grpc_tools")
    assert found is not None, "checked before any schema is read"
    assert found.origin is not None
    return str(Path(found.origin).parents[1])


def _read(path: Path) -> Foreign:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  only for those who read Protobuf
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return FileDescriptorSet.FromString(path.read_bytes())
    except DecodeError:
        raise unusable("Protobuf", "it is nested too deeply") from None
