"""`scripts/kafka tool`: the tools that the pages name can be had, and talk to the Kafka that runs here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.topics import Topics

from tools.kafka import ClusterError
from tools.kafka.java import JAR, MAIN_CLASSES, main_class, run_tool
from tools.kafka.versions import DEFAULT

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_every_tool_that_the_pages_name_can_be_had() -> None:
    """Every tool named in the documentation is available, with or without `.sh`."""
    pages = "".join(path.read_text("utf-8") for path in sorted(DEPLOY.rglob("*.md")))
    named = set(
        re.findall(r"\bkafka-(?:acls|consumer-groups|topics|transactions|configs|get-offsets)(?:\.sh)?\b", pages)
    )
    assert {"kafka-acls.sh", "kafka-consumer-groups", "kafka-topics", "kafka-transactions.sh"} <= named
    assert {main_class(name) for name in named} <= set(MAIN_CLASSES.values())
    with pytest.raises(ClusterError, match="there are acls, "):
        main_class("kafka-nothing")


def test_their_jar_is_of_the_version_that_the_others_are_of() -> None:
    """The tools' jar has the lock's version, because another one may call missing methods."""
    assert JAR.coordinates.endswith(f":{DEFAULT}")


@pytest.mark.broker
def test_a_tool_talks_to_the_kafka_that_runs_here(topics: Topics, capfd: pytest.CaptureFixture[str]) -> None:
    """A tool uses the local Kafka unless another one is named, and its exit code is passed on."""
    assert 0 == run_tool("kafka-topics.sh", ["--list"], topics.bootstrap_servers)
    assert topics.input in capfd.readouterr().out.splitlines()
    assert 0 != run_tool("topics", ["--nonsense"], topics.bootstrap_servers)
