"""What scripts/bench carry packs for a machine without a package index."""

from __future__ import annotations

import struct

import pytest
import typer

from tools import ARTICLES, MINILM, ROOT, SCRIPTS
from tools.bench.gpu.carry import FOR_KAFKA, LACKING, SECTION, checkout_files, locked, trim

Entry = tuple[int, bytes]
"""Architecture and code."""


def fat_binary(*entries: Entry) -> bytes:
    """As CUDA's linker writes it, with headers of 64 bytes and a gap behind it."""
    body = b"".join(
        struct.pack("<HHIQ", 2, 257, 64, len(code)) + bytes(12) + struct.pack("<I", architecture) + bytes(32) + code
        for architecture, code in entries
    )
    binary = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    return binary + bytes(-len(binary) % 8 + 8)


def library(*binaries: bytes) -> bytearray:
    """An ELF library with one section of fat binaries and one of names."""
    content, names = b"".join(binaries), f"\0{SECTION}\0.shstrtab\0".encode()
    table = 64 + len(content) + len(names)
    header = b"\x7fELF\x02".ljust(0x28, b"\0") + struct.pack("<Q", table) + bytes(10) + struct.pack("<HHH", 64, 2, 1)
    sections = [(1, 64, len(content)), (1 + len(SECTION) + 1, 64 + len(content), len(names))]
    rows = b"".join(
        struct.pack("<IIQQQQ", name, 1, 0, 0, start, size).ljust(64, b"\0") for name, start, size in sections
    )
    return bytearray(header.ljust(64, b"\0") + content + names + rows)


OURS, OTHERS, LONE = b"A" * 40, b"B" * 24, b"C" * 16


def test_only_the_code_of_other_gpus_is_zeroed() -> None:
    """The library keeps its size, its headers and what every encoder needs."""
    made = library(fat_binary((80, OTHERS), (90, OURS)), fat_binary((90, LONE)), fat_binary((90, OURS), (75, OTHERS)))
    trimmed = bytearray(made)
    assert 2 * len(OURS) == trim(trimmed, 90, lone=False)
    assert len(made) == len(trimmed)
    assert made.replace(OTHERS, bytes(24)).replace(LONE, bytes(16)) == trimmed
    assert 2 * len(OURS) + len(LONE) == trim(bytearray(made), 90, lone=True)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (library(fat_binary((80, OTHERS))), "no code for sm90"),
        (bytearray(b"MZ" + bytes(200)), "not a 64-bit ELF"),
        (library().replace(SECTION.encode(), b".nv_fatcat"), f"no section {SECTION}"),
    ],
)
def test_a_library_without_code_for_the_gpu_is_refused(made: bytearray, said: str) -> None:
    """An archive that cannot run is not made."""
    with pytest.raises(ValueError, match=said):
        trim(made, 90, lone=True)


def test_packages_are_those_of_the_locks_with_their_hashes() -> None:
    """Nothing comes without a checksum."""
    for name in (*LACKING, *FOR_KAFKA):
        lines = locked(name).splitlines()
        assert lines[0].startswith(f"{name}==")
        assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
        assert len(lines) > 1
    with pytest.raises(typer.BadParameter, match="is not in"):
        locked("pydanti")


def test_the_checkout_has_what_the_bench_reads_and_no_large_weights() -> None:
    """The models of the dry run, the articles and the scripts; 64 MiB hold it even before it is packed."""
    files = checkout_files()
    read = [MINILM / "model.safetensors", ARTICLES, SCRIPTS / "bench"]
    assert {path.relative_to(ROOT).as_posix() for path in read} <= {*files}
    assert [] == [name for name in files if name.endswith((".png", ".pyc"))]
    assert sum((ROOT / name).stat().st_size for name in files) < 64 * 2**20
