"""Real nodes serve, survive faults, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.patience import PATIENCE_S

from tools.kafka import Cluster, ClusterError
from tools.kafka.java import ClassArchive
from tools.kafka.keeper import processes_of
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

SCRIPTS = Path(__file__).parents[3] / "scripts"
PARENT = "from tools.kafka import Cluster; Cluster().start(); input()"


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
