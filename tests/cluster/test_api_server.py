"""The cluster itself: that it refuses, schedules and scales as a real one does, so that the chart's tests mean something."""

from __future__ import annotations

from typing import Any

import pytest

from tools.cluster.client import Client, wait_for
from tools.cluster.objects import GPU_NODES, GPUS_PER_NODE

pytestmark = pytest.mark.cluster

GPUS = GPU_NODES * GPUS_PER_NODE


def deployment(replicas: int, gpus: int = 0) -> dict[str, Any]:
    """A workload named `worker`; its image is never pulled."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "worker", "image": "enricher.invalid/worker", "resources": {"limits": limits}}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}] if gpus else []
    spec = {"containers": [container], "tolerations": tolerations}
    template = {"metadata": {"labels": {"app": "worker"}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "worker"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "worker"}}, "template": template},
    }


def scaled_object(**spec: object) -> dict[str, Any]:
    """A ScaledObject for `worker`, by two schedules, of which one always holds: the one scaler that asks nobody."""
    hours = [("0 0 * * *", "0 13 * * *"), ("0 12 * * *", "0 1 * * *")]
    common = {"timezone": "Etc/UTC", "desiredReplicas": "3"}
    triggers = [{"type": "cron", "metadata": {**common, "start": start, "end": end}} for start, end in hours]
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "worker"},
        "spec": {"scaleTargetRef": {"name": "worker"}, "triggers": triggers, **spec},
    }


def phases(client: Client) -> list[str]:
    """The phases of the workload's pods, sorted."""
    return sorted(pod["status"]["phase"] for pod in client.all("pods", "app=worker"))


def test_a_misspelt_field_is_refused_by_name(client: Client) -> None:
    """Of Kubernetes' own objects and of the operators' as well."""
    ours = deployment(1)
    ours["spec"]["replica"] = 1
    foreign = scaled_object(pollingIntervall=5)
    assert 'unknown field "spec.replica"' in client.apply(ours, dry_run=True).stderr
    assert 'unknown field "spec.pollingIntervall"' in client.apply(foreign, dry_run=True).stderr


def test_the_same_without_the_misspelling_is_accepted(client: Client) -> None:
    """The control: it is the field that was refused."""
    for right in (deployment(1), scaled_object(pollingInterval=5)):
        answer = client.apply(right, dry_run=True)
        assert answer.returncode == 0, answer.stderr


def test_pods_get_the_gpus_that_there_are_and_the_rest_wait(client: Client) -> None:
    """Scheduling is real, though the nodes are not."""
    applied = client.apply(deployment(GPUS + 1, gpus=1))
    assert applied.returncode == 0, applied.stderr
    expected = ["Pending", *["Running"] * GPUS]
    wait_for("pods on all GPUs", lambda: phases(client) == expected)
    nodes = [pod["spec"].get("nodeName", "none")[:4] for pod in client.all("pods", "app=worker")]
    assert sorted(nodes) == [*["gpu-"] * GPUS, "none"]


@pytest.fixture
def restricted(client: Client) -> Client:
    """A namespace under the strictest of Kubernetes' pod security standards."""
    labelled = client.kubectl(
        "label", "namespace", str(client.namespace), "pod-security.kubernetes.io/enforce=restricted"
    )
    assert labelled.returncode == 0, labelled.stderr
    return client


def test_a_careless_pod_is_refused_where_security_is_enforced(restricted: Client) -> None:
    """Admission is on: a chart that would be turned away at a user's is turned away here."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "careless"}}
    pod["spec"] = deployment(1)["spec"]["template"]["spec"]
    assert 'violates PodSecurity "restricted' in restricted.apply(pod, dry_run=True).stderr


def test_keda_scales_a_workload(client: Client) -> None:
    """The operator, its metrics API and the HorizontalPodAutoscaler together: from one replica to three."""
    applied = client.apply(deployment(1), scaled_object(pollingInterval=1, minReplicaCount=1, maxReplicaCount=5))
    assert applied.returncode == 0, applied.stderr
    wait_for("three replicas", lambda: phases(client) == ["Running"] * 3)
