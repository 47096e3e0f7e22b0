"""A library's GPU code without that of other GPUs, which is nine tenths of ONNX Runtime's CUDA provider.

The code is zeroed where it is, so that the library keeps its layout and packs to almost nothing. The formats are ELF's and
that of CUDA's fat binaries: a header (magic, version, its own size, the size of what follows), then entries (kind, version,
own size, size of the code; 28 bytes in, the architecture).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

SECTION = ".nv_fatbin"
_MAGIC = 0xBA55ED50
_ALIGNED_BYTES = 8


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code or PTX for one architecture, such as 90; a half-open range of the library."""

    architecture: int
    start: int
    stop: int


def trim(library: bytearray, architecture: int, *, lone: bool) -> int:
    """Zero the code of all architectures but one; returns the bytes of code that are left.

    `lone` keeps what exists for this architecture only: for sm90 these are kernels of generative models, which no encoder
    runs. Raises ValueError where no code is left.
    """
    kept = 0
    for binary in _fat_binaries(library):
        others = any(code.architecture != architecture for code in binary)
        for code in binary:
            if code.architecture == architecture and (others or lone):
                kept += code.stop - code.start
            else:
                library[code.start : code.stop] = bytes(code.stop - code.start)
    if not kept:
        raise ValueError(f"there is no code for sm{architecture}")
    return kept


def _fat_binaries(library: bytearray) -> Iterator[list[Code]]:
    place, end = _section(library)
    while place < end:
        magic, _, header, size = struct.unpack_from("<IHHQ", library, place)
        if magic != _MAGIC:  # between two
            place += _ALIGNED_BYTES
            continue
        place, stop, found = place + header, place + header + size, list[Code]()
        while place < stop:
            _, _, header, size = struct.unpack_from("<HHIQ", library, place)
            (architecture,) = struct.unpack_from("<I", library, place + 28)
            found.append(Code(architecture, place + header, place + header + size))
            place += header + size
        yield found
        place = -(-stop // _ALIGNED_BYTES) * _ALIGNED_BYTES


def _section(library: bytearray) -> tuple[int, int]:
    """Start and stop of each fat binary. Raises ValueError if it is no such library."""
    if library[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF library")
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names = struct.unpack_from("<HHH", library, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", library, table + index * size) for index in range(count)]
    for name, _, _, _, start, length in sections:
        begins = sections[names][4] + name
        if library[begins : library.index(0, begins)] == SECTION.encode():
            return start, start + length
    raise ValueError(f"no section {SECTION}")
