"""Turns Protobuf schemas, as registries keep them, into descriptors in their own pool, if need be with protoc.

A registry keeps text, as in a .proto file, or a `FileDescriptorProto` in base64, as Confluent's Python client registers it.
A schema may import files of Google and Confluent that all their clients have, without referring to them.

Text comes from strangers, and protoc is a compiler in C++. So it runs in another process, with limits of time, processor
time, memory and the size of files, in a folder that contains nothing but the schema's files, without any plugin, and without
our environment, which holds secrets. The names that it gets were checked, and its output only becomes the text of an error,
shortened.
"""

from __future__ import annotations

import binascii
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.resources import files as package_files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from enricher.worker.articles.schemas import MAX_LEVELS, MAX_MESSAGES, Foreign, Schema, unusable

_MAX_DECLARATIONS = 50_000
"""Messages, fields, enums and their values in all files of a schema; each takes about 200 bytes of memory."""
_MAX_FULL_NAME_CHARS = 500
"""The bound of a full name, with the package and all messages around it, which a pool keeps for each declaration."""
_IMPORT = re.compile(r"""["']((?:google|confluent)/[a-z_/]+\.proto)["']""")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_GOOGLE = "any api descriptor duration empty field_mask source_context struct timestamp type wrappers"
_GOOGLE_TYPES = (
    "calendar_period color date datetime dayofweek decimal expr fraction interval latlng localized_text money month "
    "phone_number postal_address quaternion timeofday"
)
_MODULES = {
    **{f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in _GOOGLE.split()},
    **{f"google/type/{name}.proto": f"google.type.{name}_pb2" for name in _GOOGLE_TYPES.split()},
}
"""Google's files, which may be imported without a reference, and the modules that contain their descriptors."""

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


def load_files(schema: Schema) -> tuple[Foreign, Foreign, list[Foreign]]:
    """A pool with all files of a schema, the `FileDescriptorProto` of its own file, and the descriptors of all messages.

    Raises InvalidArticle.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  only for those who read Protobuf
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415

    texts = {reference.name: reference.text for reference in schema.references}
    for name in texts:
        check_name(name)
    texts[ROOT_FILE] = schema.text
    files = {name: file for name, text in texts.items() if (file := _from_base64(name, text)) is not None}
    files |= _known_files((name for file in files.values() for name in file.dependency), texts)
    if ROOT_FILE not in files:
        sources = {name: text for name, text in texts.items() if name not in files}
        files |= _known_files((match for text in sources.values() for match in _IMPORT.findall(text)), texts)
        known = FileDescriptorSet(file=_dependencies_first(files))
        files = {file.name: file for file in compile_text(schema.text, sources, known).file}
    _check_size(files.values())
    pool = DescriptorPool()
    needed = _dependencies_first(files)
    for file in needed:
        try:
            file.ClearField("service")  # payloads have no services
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise unusable("Protobuf", error) from None
    return pool, files[ROOT_FILE], message_types(pool, needed)


def _from_base64(name: str, text: str) -> Foreign | None:
    """The file in a text that is base64 and a descriptor; None if it is not base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    if not _BASE64.fullmatch(text.strip()):
        return None
    try:
        file = FileDescriptorProto.FromString(b64decode(text))
    except (binascii.Error, DecodeError):
        raise unusable("Protobuf", "it is neither the text of a .proto file nor a file descriptor in base64") from None
    file.name = name
    return file


def _known_files(wanted: Iterable[str], given: Iterable[str]) -> dict[str, Foreign]:
    """The wanted files that we have ourselves, with their imports, but not the schema's own files (`given`)."""
    found: dict[str, Foreign] = {}
    missing = list(wanted)
    while missing:
        name = missing.pop()
        if name in found or name in given or (file := _known_file(name)) is None:
            continue
        found[name] = file
        missing.extend(file.dependency)
    return found


def _known_file(name: str) -> Foreign | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415

    if serialized := _confluents_files().get(name):
        return FileDescriptorProto.FromString(serialized)
    if name not in _MODULES:
        return None
    try:
        module = import_module(_MODULES[name])
    except ImportError:
        raise unusable("Protobuf", f"it imports {name}, which is not installed here") from None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


@cache
def _confluents_files() -> dict[str, bytes]:
    """Confluent's files, which may be imported too, by name; `scripts/record-schemas` compiles them from `confluent/`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415

    compiled_files = package_files("enricher.worker.articles.formats").joinpath("confluent/known.binpb").read_bytes()
    return {file.name: file.SerializeToString() for file in FileDescriptorSet.FromString(compiled_files).file}


def _dependencies_first(files: Mapping[str, Foreign]) -> list[Foreign]:
    """The files in the order in which a pool takes them, without unused ones. Raises InvalidArticle for a circle."""
    try:
        order = TopologicalSorter({name: set(file.dependency) for name, file in files.items()}).static_order()
        return [files[name] for name in order if name in files]
    except CycleError:
        raise unusable("Protobuf", "its files import each other in a circle") from None


def _check_size(files: Iterable[Foreign]) -> None:
    declarations = messages = 0
    for file in files:
        declarations += _declarations(file, file.extension, len(file.package))
        missing = [(message, 1, len(file.package)) for message in file.message_type]
        while missing:
            message, level, outer_chars = missing.pop()
            if level > MAX_LEVELS:
                raise unusable("Protobuf", f"more than {MAX_LEVELS} levels")
            if message.options.message_set_wire_format:
                raise unusable("Protobuf", "message sets are not supported")
            chars = outer_chars + len(message.name) + 1
            missing.extend((nested, level + 1, chars) for nested in message.nested_type)
            messages += 1
            declarations += 1 + _declarations(message, [*message.field, *message.extension, *message.oneof_decl], chars)
            if messages > MAX_MESSAGES:
                raise unusable("Protobuf", f"more than {MAX_MESSAGES} messages")
            if declarations > _MAX_DECLARATIONS:
                raise unusable("Protobuf", f"more than {_MAX_DECLARATIONS} messages, fields and values of enums")


def _declarations(scope: Foreign, fields: Collection[Foreign], outer_chars: int) -> int:
    """The number of fields and enums with their values in a scope. Raises InvalidArticle if a full name is too long."""
    values = [len(enum.name) + len(value.name) + 1 for enum in scope.enum_type for value in enum.value]
    names = [len(each.name) for each in (*fields, *scope.enum_type)]
    if outer_chars + 1 + max(names + values, default=0) > _MAX_FULL_NAME_CHARS:
        raise unusable("Protobuf", f"a full name has more than {_MAX_FULL_NAME_CHARS} characters")
    return len(names) + len(values)


def message_types(pool: Foreign, files: Iterable[Foreign]) -> list[Foreign]:
    """The descriptors of all messages that the files declare, the entries of maps included."""
    found, missing = [], [pool.FindFileByName(file.name).message_types_by_name for file in files]
    while missing:
        for each in missing.pop().values():
            found.append(each)
            missing.append(each.nested_types_by_name)
    return found


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
