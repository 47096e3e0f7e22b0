"""The number of workers: fixed, by KEDA or by a HorizontalPodAutoscaler; and which values are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deploy.chart_rendering import (
    CI_FILES,
    FULL_NAME,
    NAMESPACE,
    Object,
    containers_of,
    environment_of,
    needs_helm,
    refusal,
    render,
    values_of,
)
from typer.testing import CliRunner

from deploy.chart.generator.layout import ROOT
from enricher.cli import app
from enricher.operate.scaling.policy import Rules
from enricher.operate.scaling.trigger import Trigger

pytestmark = [needs_helm, pytest.mark.slow]

KEDA: Object = {"autoscaling": {"mode": "keda"}}
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
    target = rendered.one(scaler)["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": FULL_NAME}


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.stem)
def test_there_are_never_two_autoscalers(path: Path) -> None:
    """Both would set the same number."""
    rendered = render(values_of(path))
    assert len(rendered.all("ScaledObject") + rendered.all("HorizontalPodAutoscaler")) <= 1


def test_two_autoscalers_cannot_even_be_asked_for() -> None:
    """The mode is one of three words."""
    for mode in ("both", ["keda", "hpa"], "keda,hpa"):
        assert "/autoscaling/mode" in refusal({"autoscaling": {"mode": mode}})


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


def test_keda_asks_the_scaler_where_it_listens() -> None:
    """Address, port, Service, container and network policy agree."""
    rendered = render(with_scaling("keda", keda={"scaler": {"port": 6001}}))
    service = rendered.one("Service", f"{FULL_NAME}-scaler")
    trigger = rendered.one("ScaledObject")["spec"]["triggers"][0]
    assert trigger["metadata"]["scalerAddress"] == f"{FULL_NAME}-scaler.{NAMESPACE}.svc:6001"
    assert [6001, "grpc"] == [service["spec"]["ports"][0][name] for name in ("port", "targetPort")]
    assert trigger["type"] == "external-push"
    (container,) = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert {"name": "grpc", "containerPort": 6001, "protocol": "TCP"} in container["ports"]
    assert ["scaler", "--host=0.0.0.0", "--port=6001"] == container["args"]
    assert container["readinessProbe"]["grpc"] == container["livenessProbe"]["grpc"] == {"port": 6001}
    policy = rendered.one("NetworkPolicy", f"{FULL_NAME}-scaler")["spec"]
    assert [{"port": "grpc", "protocol": "TCP"}] == policy["ingress"][0]["ports"]
    keda = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    assert [keda] == policy["ingress"][0]["from"]


def test_the_scaler_understands_what_it_is_asked() -> None:
    """The scaler's own parser, which refuses unknown names, reads the metadata."""
    rendered = render(with_scaling("keda", targetAgeSeconds=20.5, maxReplicas=6, keda={"catchUpSeconds": 90}))
    metadata = rendered.one("ScaledObject")["spec"]["triggers"][0]["metadata"]
    asked = Trigger("group", "topic", Rules()).changed_by(metadata)
    assert asked == Trigger("group", "topic", Rules(target_age_s=20.5, catch_up_s=90, max_workers=6))


@pytest.mark.parametrize(
    "values", [KEDA, with_scaling("keda", keda={"scaler": {"tls": {"existingSecret": "tls"}}})], ids=str
)
def test_the_scalers_command_line_is_one(values: Object) -> None:
    """The command parses them; a final `--help` keeps it from starting."""
    (container,) = render(values).one("Deployment")["spec"]["template"]["spec"]["containers"]
    for argument in container["args"][1:]:
        assert argument.split("=")[0] in CliRunner().invoke(app, ["scaler", "--help"], terminal_width=200).output
    assert CliRunner().invoke(app, [*container["args"], "--help"]).exit_code == 0


def test_the_scaler_sees_what_the_workers_see() -> None:
    """It has the same Kafka settings and secrets."""
    path = next(path for path in CI_FILES if path.stem == "production-values")
    rendered = render(values_of(path))
    (scaler,) = containers_of(rendered.one("Deployment")["spec"]["template"]["spec"])

    def of_kafka(container: Object) -> dict[str, str]:
        found = environment_of(container).items()
        return {name: value for name, value in found if name.startswith("ENRICHER_KAFKA__")}

    assert of_kafka(rendered.worker) == of_kafka(scaler)
    secrets = [mount for mount in rendered.worker["volumeMounts"] if mount["mountPath"].startswith("/run/secrets/")]
    assert len(secrets) == 2
    assert all(mount in scaler["volumeMounts"] for mount in secrets)


def test_keda_and_the_scaler_may_prove_who_they_are() -> None:
    """Mutual TLS, from a Secret; KEDA's key does not reach the scaler."""
    tls = {"existingSecret": "scaler-tls"}
    rendered = render(with_scaling("keda", keda={"scaler": {"tls": tls}}))
    trigger = rendered.one("ScaledObject")["spec"]["triggers"][0]
    assert trigger["metadata"]["enableTLS"] == "true"
    assert trigger["authenticationRef"]["name"] == rendered.one("TriggerAuthentication")["metadata"]["name"]
    references = rendered.one("TriggerAuthentication")["spec"]["secretTargetRef"]
    keys = {"caCert": "ca.crt", "tlsClientCert": "client.crt", "tlsClientKey": "client.key"}
    assert keys == {each["parameter"]: each["key"] for each in references}
    pod = rendered.one("Deployment")["spec"]["template"]["spec"]
    service = rendered.one("Service", f"{FULL_NAME}-scaler")
    assert "appProtocol" not in service["spec"]["ports"][0], "h2c is HTTP/2 without TLS"
    (volume,) = (each for each in pod["volumes"] if each["name"] == "scaler-tls")
    assert ["tls.crt", "tls.key", "ca.crt"] == [item["key"] for item in volume["secret"]["items"]]
    assert not render(KEDA).all("TriggerAuthentication")


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
