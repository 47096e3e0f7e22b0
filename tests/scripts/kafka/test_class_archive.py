"""The archive of a broker's classes: recorded once, taken by every later start, ignored where it does not fit."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tools.kafka import Cluster
from tools.kafka.class_archive import BROKER, ClassArchive


def command_of(cluster: Cluster) -> list[str]:
    """The command line of its broker."""
    return psutil.Process(cluster.nodes[0].pid).cmdline()


@pytest.mark.long
@pytest.mark.broker
def test_a_broker_writes_it_and_others_start_with_it(tmp_path: Path) -> None:
    """The next one uses it; one that is damaged costs only the time that it would have saved."""
    with Cluster(archive=ClassArchive(tmp_path, records=True)) as cluster:
        cluster.nodes[0].stop(300)
    archive = ClassArchive(tmp_path)
    assert archive.path.stat().st_size > 10_000_000
    with Cluster(archive=archive) as cluster:
        assert f"-XX:AOTCache={archive.path}" in command_of(cluster)
    archive.path.write_bytes(archive.path.read_bytes()[:1_000_000])
    with Cluster(archive=archive) as cluster:
        cluster.warm_up()


def test_it_is_taken_where_it_is_and_only_a_broker_writes_it(tmp_path: Path) -> None:
    """Other programs of the same jars use it too."""
    assert () == ClassArchive(tmp_path).options(BROKER)
    assert () == ClassArchive(tmp_path, records=True).options("kafka.tools.StorageTool")
    [option] = ClassArchive(tmp_path, records=True).options(BROKER)
    assert option.startswith("-XX:AOTCacheOutput=")
    ClassArchive(tmp_path).path.touch()
    assert f"-XX:AOTCache={ClassArchive(tmp_path).path}" in ClassArchive(tmp_path).options("kafka.tools.StorageTool")
