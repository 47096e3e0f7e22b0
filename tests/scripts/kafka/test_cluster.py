"""Real nodes serve, survive faults, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from support.patience import PATIENCE_S

from tools.kafka import Cluster, ClusterError
from tools.kafka.java import BROKER, ClassArchive
from tools.kafka.keeper import processes_of
from tools.kafka.node import quiet_admin
from tools.kafka.properties import MAX_MESSAGE_BYTES, QUICK_TO_NOTICE
from tools.kafka.versions import DEFAULT, OLDEST
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

SCRIPTS = Path(__file__).parents[3] / "scripts"
PARENT = "from tools.kafka import Cluster; Cluster().start(); input()"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node for tests that leave it unchanged."""
    with Cluster(properties=QUICK_TO_NOTICE) as started:
        yield started


def make_topic(bootstrap_servers: str) -> str:
    """Create a topic with one partition and a unique name."""
    name = f"test-{uuid.uuid4().hex}"
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    client.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    return name


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """Read `count` committed values of a topic, or fewer if no more come."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])  # quicker than joining a group
    try:
        return [message.value() or b"" for message in consumer.consume(count, PATIENCE_S)]
    finally:
        consumer.close()


def write(cluster: Cluster, topic: str, value: bytes) -> None:
    """Write one record; returns when all in-sync replicas have it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.max.bytes": MAX_MESSAGE_BYTES})
    errors: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors == [None]


def test_record_of_fifteen_mebibytes_is_taken(cluster: Cluster) -> None:
    """Records far above Kafka's usual 1 MiB can be tried on this broker."""
    topic = make_topic(cluster.bootstrap_servers)
    value = os.urandom(15 * 1024 * 1024)
    write(cluster, topic, value)
    assert [value] == read(cluster, topic, 1)


def test_killed_node_comes_back_with_its_records(cluster: Cluster) -> None:
    """After SIGKILL and a restart a node has its address and data again."""
    topic = make_topic(cluster.bootstrap_servers)
    write(cluster, topic, b"kept")
    node = cluster.nodes[0]
    node.kill()
    assert not node.running
    node.start()
    assert read(cluster, topic, 1) == [b"kept"]


def test_suspended_node_is_silent_until_it_resumes(cluster: Cluster) -> None:
    """A suspended node keeps its process and connections, and answers nothing."""
    node = cluster.nodes[0]
    node.suspend()
    try:
        assert node.running
        assert not node.sees({node.node_id})
    finally:
        node.resume()
    assert wait_until(lambda: node.sees({node.node_id}), PATIENCE_S)


def test_warm_up_leaves_nothing(cluster: Cluster) -> None:
    """It removes its topic; only Kafka's own may be there that were not before."""
    client = quiet_admin(cluster.bootstrap_servers)
    before = client.list_topics(timeout=PATIENCE_S).topics.keys()
    cluster.warm_up()
    after = client.list_topics(timeout=PATIENCE_S).topics.keys()
    assert {"__consumer_offsets", "__transaction_state"} <= after
    assert after - before <= {"__consumer_offsets", "__transaction_state"}


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_cluster_dies_with_a_killed_parent(name: str, tmp_path: Path) -> None:
    """However the parent ends, and be it while they start, its nodes and their folder are gone soon afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment) as parent:
        assert wait_until(lambda: any(processes_of(tmp_path)), PATIENCE_S)
        parent.send_signal(getattr(signal, name))
    assert wait_until(lambda: not any(tmp_path.iterdir()), PATIENCE_S)
    assert list(processes_of(tmp_path)) == []


def test_node_that_cannot_start_says_why_and_leaves_nothing() -> None:
    """A rejected setting raises an error with the end of Kafka's log."""
    cluster = Cluster(properties={"num.network.threads": "none"})
    with pytest.raises(ClusterError, match=r"num\.network\.threads"):
        cluster.start()
    assert not cluster.nodes[0].folder.exists()


@pytest.mark.long
@pytest.mark.parametrize("version", [DEFAULT, OLDEST])
def test_three_nodes_go_on_without_one(version: str) -> None:
    """A replicated topic takes records while a node is dead, and the node joins again when it is back."""
    with Cluster(nodes=3, version=version, properties=QUICK_TO_NOTICE) as cluster:
        topic = make_topic(cluster.bootstrap_servers)
        write(cluster, topic, b"three")
        dead = cluster.nodes[0]
        dead.kill()
        write(cluster, topic, b"two")
        dead.start()
        assert read(cluster, topic, 2) == [b"three", b"two"]


def test_a_class_archive_is_taken_where_it_is_and_only_a_broker_writes_it(tmp_path: Path) -> None:
    """Other programs of the same jars use it too."""
    assert () == ClassArchive(tmp_path).options(BROKER)
    assert () == ClassArchive(tmp_path, records=True).options("kafka.tools.StorageTool")
    [option] = ClassArchive(tmp_path, records=True).options(BROKER)
    assert option.startswith("-XX:AOTCacheOutput=")
    ClassArchive(tmp_path).path.touch()
    assert f"-XX:AOTCache={ClassArchive(tmp_path).path}" in ClassArchive(tmp_path).options("kafka.tools.StorageTool")


@pytest.mark.long
def test_a_broker_records_its_classes_and_others_start_with_them(tmp_path: Path) -> None:
    """The next one uses them; an archive that is damaged costs only the time that it would have saved."""
    with Cluster(archive=ClassArchive(tmp_path, records=True)) as cluster:
        cluster.nodes[0].stop(300)
    archive = ClassArchive(tmp_path)
    assert archive.path.stat().st_size > 10_000_000
    with Cluster(archive=archive) as cluster:
        assert f"-XX:AOTCache={archive.path}" in psutil.Process(cluster.nodes[0].pid).cmdline()
    archive.path.write_bytes(archive.path.read_bytes()[:1_000_000])
    with Cluster(archive=archive) as cluster:
        cluster.warm_up()
