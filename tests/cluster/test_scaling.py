"""The chart's ScaledObject, a real KEDA, `enricher scaler` and a real Kafka: the number of workers follows the work.

No worker runs: the pods are only played. The scaler runs beside the cluster, so its address is the one thing that is
changed in what the chart made; a service's name means nothing on this machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.topics import PARTITIONS, Topics

from deploy.chart.generator.layout import CHART
from tools.cluster.client import Client, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.broker, pytest.mark.timeout(600)]

NAME = "news-enricher"
VALUES = {
    "mode": "keda",
    "minReplicas": 0,
    "maxReplicas": PARTITIONS,
    "targetAgeSeconds": 1,
    "scaleDownStabilizationSeconds": 0,
    "keda.pollingIntervalSeconds": 1,
    "keda.cooldownSeconds": 1,
}
LATELY_S = 60.0  # what came so long ago still counts as coming (enricher/operate/scaling/rates.py)
AGE_S = 3600.0


@contextmanager
def scaler(topics: Topics, folder: Path) -> Iterator[str]:
    """`enricher scaler`, and its address; its work is over when this is."""
    log = folder / "scaler.log"
    command = [sys.executable, "-m", "enricher", "scaler", "--port=0"]
    with log.open("w") as output:
        process = subprocess.Popen(command, env={**os.environ, **topics.environment}, stderr=output, cwd=folder)
    try:
        found = wait_for(
            f"the scaler's port in {log}", lambda: re.search(r"KEDA on (127\.0\.0\.1:\d+)", log.read_text())
        )
        yield found[1]
    finally:
        process.terminate()
        process.wait(timeout=30)


def install(client: Client, address: str) -> None:
    """Install the chart, scaled by the scaler at this address."""
    settings = [f"--set=autoscaling.{name}={value}" for name, value in VALUES.items()]
    installed = client.helm("install", "news", str(CHART), *settings)
    assert installed.returncode == 0, installed.stderr
    change = [{"op": "replace", "path": "/spec/triggers/0/metadata/scalerAddress", "value": address}]
    patched = client.kubectl("patch", "scaledobject", NAME, "--type=json", f"--patch={json.dumps(change)}")
    assert patched.returncode == 0, patched.stderr


def replicas(client: Client) -> int:
    """How many workers the StatefulSet is told to have."""
    found = client.get("statefulset", NAME)
    assert found is not None
    wanted: int = found["spec"]["replicas"]
    return wanted


def pods(client: Client) -> int:
    """How many workers there are."""
    return len(client.all("pods", "app.kubernetes.io/component=worker"))


def publish_old_records(topics: Topics) -> None:
    """Records that wait for an hour already, on every partition."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers})
    for number in range(10 * PARTITIONS):
        timestamp_ms = int((time.time() - AGE_S) * 1000)
        producer.produce(topics.input, value=b"{}", partition=number % PARTITIONS, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


def finish_the_work(topics: Topics) -> None:
    """Commit the ends of all partitions, as the group's workers would."""
    reader = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": topics.group})
    partitions = [TopicPartition(topics.input, number) for number in range(PARTITIONS)]
    ends = [TopicPartition(each.topic, each.partition, reader.get_watermark_offsets(each)[1]) for each in partitions]
    reader.close()
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    request = [ConsumerGroupTopicPartitions(topics.group, ends)]
    for future in admin.alter_consumer_group_offsets(request).values():
        future.result(timeout=30)


def test_workers_come_with_the_work_and_go_with_it(client: Client, topics: Topics, tmp_path: Path) -> None:
    """From none to two (of which nobody knows yet how fast they are), and to none again."""
    with scaler(topics, tmp_path) as address:
        install(client, address)
        wait_for("no worker, as there is no work", lambda: replicas(client) == 0 and pods(client) == 0)
        publish_old_records(topics)
        wait_for("two workers for old records", lambda: replicas(client) == 2 and pods(client) == 2)
        finish_the_work(topics)
        wait_for("no worker again", lambda: replicas(client) == 0 and pods(client) == 0, LATELY_S + 240.0)


def test_workers_stay_when_the_scaler_is_gone(client: Client, topics: Topics, tmp_path: Path) -> None:
    """No news is no reason to stop the work."""

    def healthy() -> str | None:
        found = client.get("scaledobject", NAME)
        assert found is not None
        conditions = {each["type"]: each.get("status") for each in found.get("status", {}).get("conditions", ())}
        return conditions.get("Ready")

    with scaler(topics, tmp_path) as address:
        publish_old_records(topics)
        install(client, address)
        wait_for("two workers for old records", lambda: replicas(client) == 2 and pods(client) == 2)
        wait_for("KEDA to be content", lambda: healthy() == "True")
    wait_for("KEDA to notice that the scaler is gone", lambda: healthy() == "False")
    assert (2, 2) == (replicas(client), pods(client))
