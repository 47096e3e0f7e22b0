"""A real API server for the tests of this folder: the developer's own where one runs, else one for this run alone.

They are skipped unless the cluster is asked for (`scripts/cluster test`): what they need takes long to build, once.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.cluster import found, missing
from tools.cluster.client import Client
from tools.cluster.service import Service, clusters_folder, default_folder
from tools.cluster.table import lacking

ASKED = os.environ.get("ENRICHER_CLUSTER") == "1"  # read here: no setting from outside reaches a test


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marker of this folder's tests."""
    config.addinivalue_line("markers", "cluster: needs the real Kubernetes API server of scripts/cluster")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    """The kubeconfig of a running cluster."""
    if not ASKED:
        pytest.skip("the cluster was not asked for: scripts/cluster test")
    for name in (*lacking(), *(["helm"] if found("helm") is None else [])):
        pytest.skip(missing(name))
    running = Service(default_folder()).running()
    if running is not None:
        yield Path(running.kubeconfig)
        return
    service = Service(clusters_folder() / f"tests-{os.getpid()}")
    try:
        yield Path(service.start().kubeconfig)
    finally:
        service.stop()


@pytest.fixture
def client(cluster: Path) -> Iterator[Client]:
    """Kubectl and helm in a fresh namespace, which is removed with all that is in it."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    client = Client(cluster, namespace)
    created = client.kubectl("create", "namespace", namespace)
    assert created.returncode == 0, created.stderr
    yield client
    client.kubectl("delete", "namespace", namespace, "--wait=false")
