"""The number of workers: fixed, by KEDA or by a HorizontalPodAutoscaler; and which values are refused."""

from __future__ import annotations

import json

import pytest
from deploy.chart_rendering import (
    CI_FILES,
    FULL_NAME,
    NAMESPACE,
    Object,
    environment_of,
    needs_helm,
    refusal,
    render,
    values_of,
)

from deploy.chart.generator.layout import ROOT

pytestmark = [needs_helm, pytest.mark.slow]

PROMETHEUS = {"serverAddress": "http://prometheus:9090"}
KEDA: Object = {"autoscaling": {"mode": "keda", "keda": {"prometheus": PROMETHEUS}}}
HPA: Object = {"autoscaling": {"mode": "hpa"}}


def with_scaling(mode: str, **others: object) -> Object:
    """Values for a kind of scaling."""
    return {"autoscaling": {"mode": mode, **others}}


def test_without_autoscaling_the_number_is_the_values() -> None:
    """Nothing else changes it."""
    rendered = render({"replicas": 3})
    assert rendered.one("StatefulSet")["spec"]["replicas"] == 3
    assert not rendered.all("ScaledObject") + rendered.all("HorizontalPodAutoscaler") + rendered.all("Deployment")


@pytest.mark.parametrize(("values", "scaler"), [(KEDA, "ScaledObject"), (HPA, "HorizontalPodAutoscaler")], ids=str)
def test_an_upgrade_does_not_undo_what_the_autoscaler_chose(values: Object, scaler: str) -> None:
    """The StatefulSet has no number of replicas, and one autoscaler targets it."""
    rendered = render(values)
    assert "replicas" not in rendered.one("StatefulSet")["spec"]
    assert 1 == len(rendered.all("ScaledObject") + rendered.all("HorizontalPodAutoscaler"))
    target = rendered.one(scaler)["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": FULL_NAME}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"replicas": 9, "capacity": {"partitions": 8}},
            "replicas (9) makes 9 workers, but the input topic has 8 partitions",
        ),
        (
            {**with_scaling("keda", maxReplicas=9), "capacity": {"partitions": 8}},
            "autoscaling.maxReplicas (9) makes 9 workers, but the input topic has 8 partitions",
        ),
        (
            {**with_scaling("hpa", maxReplicas=99), "strimzi": {"cluster": "main", "topics": {"enabled": True}}},
            "the input topic has 12 partitions",
        ),
        (
            {**with_scaling("keda", maxReplicas=5), "gpu": {"enabled": True}, "capacity": {"gpus": 4}},
            "autoscaling.maxReplicas is 5, with 1 GPU each, but there are 4",
        ),
        ({"replicas": 3, "processes": 3, "capacity": {"partitions": 8}}, "replicas (3) makes 9 workers, but"),
        ({**KEDA, "processes": 2}, "processes above 1 needs autoscaling.mode none"),
        (with_scaling("keda"), "autoscaling.mode keda needs autoscaling.keda.prometheus.serverAddress"),
        (with_scaling("hpa", minReplicas=0), "minReplicas: 0 needs autoscaling.mode keda"),
        (with_scaling("keda", minReplicas=5), "autoscaling.minReplicas (5) is above autoscaling.maxReplicas (4)"),
    ],
    ids=lambda each: json.dumps(each) if isinstance(each, dict) else None,
)
def test_numbers_that_cannot_work_are_refused_with_the_reason(values: Object, said: str) -> None:
    """A worker without a partition is idle; one without a GPU stays pending and blocks drains."""
    assert said in refusal(values)


def test_gpus_count_only_where_workers_take_them() -> None:
    """On CPU there may be more workers than GPUs."""
    assert render({"replicas": 5, "capacity": {"gpus": 4}}).one("StatefulSet")["spec"]["replicas"] == 5


def triggers(values: Object) -> dict[str, Object]:
    """The triggers of the ScaledObject by name."""
    return {each["name"]: each for each in render(values).one("ScaledObject")["spec"]["triggers"]}


def test_keda_takes_the_number_that_the_query_wants() -> None:
    """It asks the same as the rule of mode `hpa`; a target of 1 returns the number unchanged."""
    found = triggers(with_scaling("keda", targetAgeSeconds=20, keda={"prometheus": PROMETHEUS}))["busy"]
    rule = render(with_scaling("hpa", targetAgeSeconds=20)).one("PrometheusRule")["spec"]["groups"][0]["rules"][0]
    assert found["metadata"]["query"].strip() == rule["expr"].strip()
    assert ["prometheus", "1", "http://prometheus:9090"] == [
        found["type"], found["metadata"]["threshold"], found["metadata"]["serverAddress"],
    ]  # fmt: skip


@pytest.mark.parametrize(("fewest", "ignored"), [(0, "true"), (1, "false")])
def test_no_answer_means_no_worker_only_where_there_may_be_none(fewest: int, ignored: str) -> None:
    """Elsewhere an empty answer is an error, and takes no worker away."""
    busy = triggers(with_scaling("keda", minReplicas=fewest, keda={"prometheus": PROMETHEUS}))["busy"]
    assert busy["metadata"]["ignoreNullValues"] == ignored


@pytest.mark.parametrize(("gpu", "threshold"), [(False, "600"), (True, "25000")])
def test_the_lag_of_every_input_topic_counts(gpu: bool, threshold: str) -> None:  # noqa: FBT001  a case of the table
    """Triggers have the settings' brokers and group; a worker on a GPU is allowed a longer queue."""
    kafka = {"bootstrap_servers": "a:9092,b:9092", "group_id": "news", "input_topics": ["breaking", "archive"]}
    found = triggers({**KEDA, "gpu": {"enabled": gpu}, "settings": {"kafka": kafka}})
    assert [*found] == ["busy", "lag-0", "lag-1"]
    assert ["breaking", "archive"] == [found[name]["metadata"]["topic"] for name in ("lag-0", "lag-1")]
    assert found["lag-0"]["type"] == "kafka"
    expected = {"bootstrapServers": "a:9092,b:9092", "consumerGroup": "news", "lagThreshold": threshold}
    assert expected.items() <= found["lag-0"]["metadata"].items()
    assert "authenticationRef" not in found["lag-0"]


def test_keda_proves_to_the_brokers_who_it_is_as_the_worker_does() -> None:
    """It reads the same Secrets; a user's name that is not secret comes from a ConfigMap."""
    rendered = render(values_of(next(path for path in CI_FILES if path.stem == "keda-tls-values")))
    lag = rendered.one("ScaledObject")["spec"]["triggers"][1]
    assert {"tls": "enable", "sasl": "scram_sha512"}.items() <= lag["metadata"].items()
    authentication = rendered.one("TriggerAuthentication")
    assert lag["authenticationRef"]["name"] == authentication["metadata"]["name"]
    secrets = {each["parameter"]: (each["name"], each["key"]) for each in authentication["spec"]["secretTargetRef"]}
    assert secrets == {
        "ca": ("kafka-ca", "ca.crt"),
        "cert": ("kafka-client", "tls.crt"),
        "key": ("kafka-client", "tls.key"),
        "keyPassword": ("kafka-client", "key-password"),
        "password": ("kafka-user", "password"),
    }
    [user] = authentication["spec"]["configMapTargetRef"]
    assert rendered.one("ConfigMap", user["name"])["data"] == {user["key"]: "enricher"}


def test_a_user_name_in_the_secret_is_read_from_there() -> None:
    """Then nothing about the user is in the values."""
    sasl = {"enabled": True, "mechanism": "PLAIN", "existingSecret": "user"}
    rendered = render({**KEDA, "kafka": {"sasl": sasl}})
    references = rendered.one("TriggerAuthentication")["spec"]["secretTargetRef"]
    assert [("username", "username"), ("password", "password")] == [
        (each["parameter"], each["key"]) for each in references
    ]
    assert rendered.one("ScaledObject")["spec"]["triggers"][1]["metadata"]["sasl"] == "plaintext"
    assert not rendered.all("ConfigMap")


def test_what_the_chart_does_not_know_of_the_brokers_can_be_named() -> None:
    """A mechanism of one's own needs a TriggerAuthentication of one's own; without it, KEDA would be refused silently."""
    properties = {"settings": {"kafka": {"properties": {"sasl.mechanism": "OAUTHBEARER"}}}}
    assert "name a TriggerAuthentication in autoscaling.keda.kafka.authentication" in refusal({**KEDA, **properties})
    own = {"authentication": "own", "metadata": {"sasl": "oauthbearer", "version": "3.7.0"}}
    values = {**with_scaling("keda", keda={"prometheus": PROMETHEUS, "kafka": own}), **properties}
    lag = triggers(values)["lag-0"]
    assert {"sasl": "oauthbearer", "version": "3.7.0"}.items() <= lag["metadata"].items()
    assert lag["authenticationRef"] == {"name": "own"}
    assert not render(values).all("TriggerAuthentication")


def test_the_hpa_takes_the_number_of_workers_that_is_wanted() -> None:
    """With an average of 1 the autoscaler's formula returns the metric; scaling on the age itself would oscillate."""
    metric = render(HPA).one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]
    assert metric["target"] == {"type": "AverageValue", "averageValue": "1"}
    selector = {"matchLabels": {"job": FULL_NAME}}
    assert metric["metric"] == {"name": "enricher_workers_wanted", "selector": selector}


def test_the_rule_is_the_query_of_the_documentation() -> None:
    """For the metrics of this release alone, with the values' target."""
    rule = render(with_scaling("hpa", targetAgeSeconds=60)).one("PrometheusRule")["spec"]["groups"][0]["rules"][0]
    metric = render(HPA).one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    assert rule["record"] == metric["name"]
    ours = f'{{namespace="{NAMESPACE}",job="{FULL_NAME}"}}'
    assert rule["expr"].count(ours) == 5
    plain = rule["expr"].replace(ours, "").replace("by (namespace, job) ", "")
    documented = (ROOT / "deploy" / "scaling.md").read_text("utf-8")
    assert "".join(plain.split()) in "".join(documented.split())
    assert not render(with_scaling("hpa", hpa={"rule": False})).all("PrometheusRule")


@pytest.mark.parametrize("values", [{}, {"fullnameOverride": "news"}], ids=str)
def test_the_hpa_the_podmonitor_and_the_traces_call_the_release_the_same(values: Object) -> None:
    """The job's name always contains "enricher", as the alerts expect."""
    both = {**values, **HPA, "monitoring": {"podMonitor": {"enabled": True}}, "otlp": {"endpoint": "http://c:4318"}}
    rendered = render(both)
    metric = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    endpoint = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    job = metric["selector"]["matchLabels"]["job"]
    assert "enricher" in job
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": job}]
    assert environment_of(rendered.worker)["OTEL_SERVICE_NAME"] == job


@pytest.mark.parametrize(("values", "kind"), [(KEDA, "ScaledObject"), (HPA, "HorizontalPodAutoscaler")], ids=str)
def test_workers_are_taken_away_slowly(values: Object, kind: str) -> None:
    """A few at a time, after a lull longer than a model's start."""
    spec = render(values).one(kind)["spec"]
    behavior = spec.get("behavior") or spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert [("Pods", 1, 120), ("Percent", 25, 120)] == [
        tuple(each.values()) for each in behavior["scaleDown"]["policies"]
    ]
    probe = render(values).worker["startupProbe"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= probe["periodSeconds"] * probe["failureThreshold"]


def test_the_budget_never_keeps_a_broken_worker() -> None:
    """A worker that is not ready may be evicted, however few are ready."""
    budget = render().one("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
