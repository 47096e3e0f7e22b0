"""The chart on a real API server: every example is accepted, and a release lives, changes, goes back and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.chart.generator.layout import CHART
from tools.cluster.client import Answer, Client, wait_for

pytestmark = pytest.mark.cluster

EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE, NAME = "news", "news-enricher"
OF_THE_RELEASE = f"app.kubernetes.io/instance={RELEASE}"
KINDS = "statefulsets,deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,configmaps,secrets"
KINDS += (
    ",scaledobjects,triggerauthentications,horizontalpodautoscalers,podmonitors,prometheusrules,kafkatopics,kafkausers"
)


@pytest.fixture
def secure(client: Client) -> Client:
    """A namespace that refuses, and warns of, what is not `restricted`."""
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    succeeded(client.kubectl("label", "namespace", str(client.namespace), *labels))
    return client


def succeeded(answer: Answer) -> Answer:
    """Demand success, and give the answer."""
    assert answer.returncode == 0, answer.stderr
    return answer


def install(client: Client, *arguments: str) -> None:
    """Install a release and wait until its pods are ready."""
    answer = client.helm("install", RELEASE, str(CHART), "--wait", "--timeout=2m", *arguments)
    assert answer.returncode == 0, answer.stderr + client.kubectl("describe", "pods").stdout


def worker(client: Client) -> dict[str, Any]:
    """The release's StatefulSet."""
    found = client.get("statefulset", NAME)
    assert found is not None
    return found


def running(client: Client) -> list[str]:
    """The names of the pods that run, sorted."""
    pods = client.all("pods", f"{OF_THE_RELEASE},app.kubernetes.io/component=worker")
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    )


def environment(client: Client, name: str) -> str | None:
    """The value of a variable of the pods that the StatefulSet makes now."""
    container = worker(client)["spec"]["template"]["spec"]["containers"][0]
    return next((entry["value"] for entry in container["env"] if entry["name"] == name), None)


def test_there_are_examples() -> None:
    """Guards the test below against a folder that moved."""
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_an_example_is_accepted_without_a_warning(secure: Client, values: Path) -> None:
    """Unknown fields, wrong types, deprecated versions and careless pods would all be named here."""
    rendered = succeeded(secure.helm("template", RELEASE, str(CHART), f"--values={values}"))
    everywhere = Client(secure.kubeconfig)
    succeeded(everywhere.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kafka"}}))  # Strimzi's
    answer = succeeded(everywhere.kubectl("apply", "--dry-run=server", "--filename=-", text=rendered.stdout))
    assert "" == answer.stderr
    assert "statefulset.apps/" in answer.stdout


def test_a_release_changes_goes_back_and_leaves_nothing(secure: Client) -> None:
    """Install, upgrade, roll back, uninstall, each as an operator does it, with the pods that follow."""
    install(secure)
    assert [f"{NAME}-0"] == running(secure)

    changed = ("--set=replicas=3", "--set=settings.batching.max_wait_ms=20")
    succeeded(secure.helm("upgrade", RELEASE, str(CHART), "--wait", "--timeout=2m", *changed))
    assert [f"{NAME}-{number}" for number in range(3)] == running(secure)
    assert "20" == environment(secure, "ENRICHER_BATCHING__MAX_WAIT_MS")

    succeeded(secure.helm("rollback", RELEASE, "1", "--wait", "--timeout=2m"))
    wait_for("the two others to be gone", lambda: [f"{NAME}-0"] == running(secure))
    assert environment(secure, "ENRICHER_BATCHING__MAX_WAIT_MS") is None

    succeeded(secure.helm("uninstall", RELEASE, "--wait", "--timeout=2m"))
    assert [] == secure.all(KINDS, OF_THE_RELEASE)
    wait_for("the pods to be gone", lambda: not running(secure))


def test_a_changed_setting_replaces_the_pods(secure: Client) -> None:
    """Settings are read at the start, so a pod that keeps running would not know of the change."""
    install(secure)
    before = secure.get("pod", f"{NAME}-0")
    assert before is not None
    succeeded(secure.helm("upgrade", RELEASE, str(CHART), "--wait", "--set=settings.batching.max_wait_ms=20"))

    def replaced() -> bool:
        now = secure.get("pod", f"{NAME}-0")
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"] and bool(running(secure))

    wait_for("another pod", replaced)


def test_an_upgrade_to_the_same_changes_nothing(secure: Client) -> None:
    """What is rendered depends on the values alone: no time, no chance."""
    install(secure)
    before = worker(secure)["metadata"]["generation"]
    succeeded(secure.helm("upgrade", RELEASE, str(CHART), "--wait"))
    assert before == worker(secure)["metadata"]["generation"]


def test_a_gpu_each_and_on_nodes_that_have_them(secure: Client) -> None:
    """By limits, tolerations and labels together, as the example for GPUs has them."""
    install(secure, f"--values={CHART / 'ci' / 'gpu-values.yaml'}", "--set=priorityClassName=")
    pods = secure.all("pods", OF_THE_RELEASE)
    assert [f"{NAME}-{number}" for number in range(4)] == running(secure)
    assert {"gpu-0", "gpu-1"} == {pod["spec"]["nodeName"] for pod in pods}


def test_a_drain_may_take_one_worker_at_a_time(secure: Client) -> None:
    """The budget finds the workers, and no other pods."""
    install(secure, "--set=replicas=3")

    def status() -> dict[str, Any]:
        (budget,) = secure.all("poddisruptionbudgets", OF_THE_RELEASE)
        found: dict[str, Any] = budget.get("status", {})
        return found

    wait_for("the budget to count three healthy workers", lambda: status().get("currentHealthy") == 3)
    assert (3, 1) == (status()["expectedPods"], status()["disruptionsAllowed"])


def test_topics_stay_when_the_release_goes(secure: Client) -> None:
    """They hold records. The user goes: it is a right to them, and no more."""
    install(secure, f"--values={CHART / 'ci' / 'strimzi-values.yaml'}", "--set=strimzi.namespace=")
    assert len(secure.all("kafkatopics", OF_THE_RELEASE)) == 3
    assert len(secure.all("kafkausers", OF_THE_RELEASE)) == 1
    succeeded(secure.helm("uninstall", RELEASE, "--wait", "--timeout=2m"))
    assert len(secure.all("kafkatopics", OF_THE_RELEASE)) == 3
    assert [] == secure.all("kafkausers", OF_THE_RELEASE)
