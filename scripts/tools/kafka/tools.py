"""Runs Kafka's own command-line tools, which the documentation mentions. They talk to brokers of any version.

Since Kafka 3.8 and 4.0 the tools are in a separate jar. Brokers do not need it, so it is named here and not in a lock.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.kafka.errors import ClusterError
from tools.kafka.jars import Jar, JarLock, class_path, default_folder
from tools.kafka.java import Java
from tools.kafka.versions import DEFAULT

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
