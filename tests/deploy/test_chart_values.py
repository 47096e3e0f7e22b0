"""What the chart computes from its values, which values it refuses, and where it must agree with a page or the program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deploy.chart_rendering import (
    FULL_NAME,
    NAMESPACE,
    Object,
    Rendered,
    environment_of,
    fields_of,
    needs_helm,
    refusal,
    render,
    settings_of,
    values_of,
)
from support.offenders import assert_none
from typer.testing import CliRunner

from deploy.chart.generator.layout import CHART, ROOT
from enricher.cli import app
from enricher.worker.commands.run import Share

pytestmark = [needs_helm, pytest.mark.slow]

URL = {"prometheus": {"serverAddress": "http://prometheus:9090"}}
STRIMZI: Object = {"cluster": "main", "user": {"enabled": True}}
DIGEST = f"sha256:{'a' * 64}"


def kafka(**settings: object) -> Object:
    """Values that set these settings of Kafka."""
    return {"settings": {"kafka": settings}}


def scaled(mode: str, **others: object) -> Object:
    """Values for a kind of scaling."""
    return {"autoscaling": {"mode": mode, "keda": URL, **others}}


def requests(cpu: object) -> Object:
    """Values that request so many cores."""
    return {"resources": {"requests": {"cpu": cpu}}}


def model(**values: object) -> Object:
    """Values for where the model is."""
    return {"model": {"path": "ner", **values}}


def indexed(**settings: object) -> Object:
    """Values with an indexer that has these settings."""
    return {"index": {"enabled": True}, "settings": {"index": settings}}


def signing_in(**auth: object) -> Object:
    """Values with an indexer that signs in so."""
    return {"index": {"enabled": True, "auth": auth}, "settings": {"index": {"url": "http://x:9200"}}}


CONCURRENCY = "env[ENRICHER_MODEL__CONCURRENCY].value"
GRACE = "terminationGracePeriodSeconds"
IMAGE = "containers[worker].image"
SOURCE = "containers[worker].env[ENRICHER_MODEL__SOURCE].value"


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"settings": {"worker": {"drain_timeout_s": 50}}}, GRACE, 50 + 15 + 60),
        ({"settings": {"kafka": {"transaction_timeout_s": 18.5}, "worker": {"stall_timeout_s": 30}}}, GRACE, 69),
        ({"probes": {"startup": {"timeoutSeconds": 601, "periodSeconds": 5}}}, "startupProbe.failureThreshold", 121),
        ({**requests(4), "processes": 3}, CONCURRENCY, "1"),
        (requests("3900m"), CONCURRENCY, "3"),
        (requests("96"), CONCURRENCY, "64"),
        ({"settings": {"model": {"concurrency": 7}}}, CONCURRENCY, "7"),
        ({"resources": {"limits": {"cpu": "2"}}}, CONCURRENCY, None),
        ({"image": {"repository": "a/b", "tag": "x", "digest": DIGEST}}, IMAGE, f"a/b:x@{DIGEST}"),
        (
            {"processes": 2, "otlp": {"endpoint": "http://collector:4318"}},
            "containers[worker].env[OTEL_RESOURCE_ATTRIBUTES].value",
            "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)",
        ),
    ],
    ids=lambda each: json.dumps(each) if isinstance(each, dict) else None,
)
def test_what_the_chart_computes(values: Object, field: str, expected: object) -> None:
    """Bounds of time are rounded up, cores down. Traces of several processes have no common instance id."""
    found = [json.loads(value) for name, value in fields_of(render(values)) if name.endswith(field)]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        (kafka(bootstrap_servers="a:9093, b:9094,c"), {9092, 9093, 9094}),
        ({**kafka(bootstrap_servers="a:9093"), "networkPolicy": {"kafka": {"ports": [9443]}}}, {9443}),
        ({"networkPolicy": {"dns": {"ports": [53, 5353]}}}, {5353, 9092}),
        ({"otlp": {"endpoint": "https://collector"}}, {9092, 443}),
        ({"settings": {"registry": {"url": "http://registry"}}}, {9092, 80}),
        (kafka(token="msk-iam", bootstrap_servers="b-1:9098"), {9098, 443, 80, 988}),
        (kafka(token="oidc", properties={"sasl.oauthbearer.token.endpoint.url": "https://idp:8443/t"}), {9092, 8443}),
        (kafka(token="oidc"), {9092}),
        ({"settings": {"registry": {"url": "https://a:8081, https://b:8085"}}}, {9092, 8081, 8085}),
        (indexed(url="https://search:9200", aws_region="eu-west-1"), {9092}),
    ],
    ids=str,
)
def test_pods_reach_what_the_settings_name_and_dns(values: Object, ports: set[int]) -> None:
    """Ports follow from the addresses, and can be set if the brokers listen on others.

    Indexers also reach the index, and what signs their requests: the metadata server of the node, and STS.
    """
    policies = {each["metadata"]["name"]: each["spec"]["egress"] for each in render(values).all("NetworkPolicy")}
    found = {name: {port["port"] for rule in rules for port in rule["ports"]} for name, rules in policies.items()}
    assert {53, *ports} == found.pop(FULL_NAME)
    assert found in ({}, {f"{FULL_NAME}-index": {53, 9092, 9200, 443, 80, 988}})


REFUSED: list[tuple[Object, str]] = [
    ({"replicas": 9, "capacity": {"partitions": 8}}, "replicas (9) makes 9 workers, but the input topic has 8"),
    ({"replicas": 3, "processes": 3, "capacity": {"partitions": 8}}, "replicas (3) makes 9 workers"),
    ({**scaled("keda", maxReplicas=9), "capacity": {"partitions": 8}}, "autoscaling.maxReplicas (9) makes 9 workers"),
    ({**scaled("hpa", maxReplicas=99), "strimzi": {"cluster": "a", "topics": {"enabled": True}}}, "has 12 partitions"),
    (
        {**scaled("keda", maxReplicas=5), "gpu": {"enabled": True}, "capacity": {"gpus": 4}},
        "with 1 GPU each, but there are 4",
    ),
    ({**scaled("keda"), "processes": 2}, "processes above 1 needs autoscaling.mode none"),
    ({"autoscaling": {"mode": "keda"}}, "autoscaling.mode keda needs autoscaling.keda.prometheus.serverAddress"),
    (
        {**scaled("keda"), **kafka(properties={"sasl.mechanism": "OAUTHBEARER"})},
        "KEDA does not read settings.kafka.properties (sasl.mechanism): name a TriggerAuthentication in autoscaling.keda",
    ),
    ({**scaled("keda"), **kafka(token="msk-iam")}, "KEDA does not read settings.kafka.token: name a Trigger"),
    (scaled("hpa", minReplicas=0), "minReplicas: 0 needs autoscaling.mode keda"),
    (scaled("keda", minReplicas=5), "autoscaling.minReplicas (5) is above autoscaling.maxReplicas (4)"),
    ({"kafka": {"sasl": {"enabled": True}}}, "kafka.sasl.enabled needs kafka.sasl.existingSecret"),
    (
        {**kafka(token="gcp"), "kafka": {"sasl": {"enabled": True, "existingSecret": "a"}}},
        "kafka.sasl.enabled and settings.kafka.token are two ways to sign in",
    ),
    ({"kafka": {"sasl": {"existingSecret": "a"}}}, "kafka.sasl names a Secret, but kafka.sasl.enabled is false"),
    ({"kafka": {"tls": {"client": {"existingSecret": "a"}}}}, "kafka.tls names a Secret, but kafka.tls.enabled is"),
    ({"kafka": {"tls": {"ca": {"existingSecret": "a"}}}}, "kafka.tls names a Secret, but kafka.tls.enabled is false"),
    ({"registry": {"auth": {"kind": "basic"}}}, "registry.auth.kind basic needs registry.auth.existingSecret"),
    ({"registry": {"auth": {"existingSecret": "a"}}}, "registry.auth names a Secret, but registry.auth.kind is none"),
    ({"registry": {"tls": {"ca": {"existingSecret": "a"}}}}, "registry names a Secret, but settings.registry.url is"),
    (
        {"model": {"path": "/opt/ner"}, "settings": {"tasks": {"topic": {"source": "/model/topic"}}}},
        "model.path has no effect beside settings.tasks",
    ),
    ({"model": {"from": "volume"}}, "model.from: volume needs model.volume.existingClaim"),
    ({"model": {"from": "init"}}, "model.from: init needs model.init.image, model.init.command or"),
    ({"index": {"enabled": True}}, "index.enabled needs settings.index.url"),
    (signing_in(kind="apiKey"), "index.auth.kind apiKey needs index.auth.existingSecret"),
    (signing_in(existingSecret="x"), "index.auth names a Secret, but index.auth.kind is none"),
    (indexed(url="http://x:9200", username="u"), "settings.index.username and index.auth.kind basic belong together"),
    ({"replay": {"enabled": True}}, "replay.enabled needs replay.into and replay.group"),
    (
        {**kafka(group_id="news"), "replay": {"enabled": True, "into": "again", "group": "news"}},
        "replay.group news is the group of the live workers",
    ),
    ({"strimzi": {"user": {"enabled": True}}}, "strimzi.topics and strimzi.user need strimzi.cluster"),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_values_that_cannot_work_are_refused_with_the_reason(values: Object, said: str) -> None:
    """Otherwise pods could not start, would be idle, or would stay pending and block drains."""
    assert said in refusal(values)


def test_every_refusal_of_the_templates_is_tried() -> None:
    """Each message in the templates is one that the values above get."""
    templates = "".join(path.read_text("utf-8") for path in sorted((CHART / "templates").iterdir()))
    messages = re.findall(r'fail (?:\(printf )?"([^"]+)"', templates)
    assert len(messages) == templates.count("{{- fail ")
    said = "".join(refusal(values) for values, _ in REFUSED)
    assert_none(each for each in messages if not re.search(re.sub("%[sd]", ".+", re.escape(each)), said))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (kafka(properties={"sasl.password": "canary"}), "/settings/kafka/properties/sasl.password"),
        (kafka(canary="news"), "/settings/kafka"),
    ],
)
def test_the_schema_is_checked_by_helm_itself(values: Object, said: str) -> None:
    """A password or a misspelt name is refused before it is stored, and the message does not repeat a value."""
    message = refusal(values)
    assert said in message
    assert "canary" not in message.replace("property 'canary'", "").replace("properties 'canary'", "")


def test_keda_asks_what_the_rule_of_mode_hpa_and_the_documentation_ask() -> None:
    """For the metrics of this release alone, with the values' target."""
    busy = render(scaled("keda", targetAgeSeconds=60)).one("ScaledObject")["spec"]["triggers"][0]
    rendered = render(scaled("hpa", targetAgeSeconds=60))
    rule = rendered.one("PrometheusRule")["spec"]["groups"][0]["rules"][0]
    metric = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    assert busy["metadata"]["query"].strip() == rule["expr"].strip()
    assert rule["record"] == metric["name"]
    ours = f'{{namespace="{NAMESPACE}",job="{FULL_NAME}"}}'
    assert rule["expr"].count(ours) == 5
    plain = rule["expr"].replace(ours, "").replace("by (namespace, job) ", "")
    documented = (ROOT / "deploy" / "scaling.md").read_text("utf-8")
    assert "".join(plain.split()) in "".join(documented.split())
    assert not render(scaled("hpa", hpa={"rule": False})).all("PrometheusRule")


def test_the_hpa_the_podmonitor_and_the_traces_call_the_release_the_same() -> None:
    """The job's name always contains "enricher", as the alerts expect."""
    seen = {"monitoring": {"podMonitor": {"enabled": True}}, "otlp": {"endpoint": "http://c:1"}}
    rendered = render({"fullnameOverride": "news", **scaled("hpa"), **seen})
    metric = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    job = metric["selector"]["matchLabels"]["job"]
    assert "enricher" in job
    endpoint = rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": job}]
    assert environment_of(rendered.worker)["OTEL_SERVICE_NAME"] == job


def test_workers_are_taken_away_after_a_lull_longer_than_their_start() -> None:
    """By both autoscalers: else a worker is taken away while it loads its model."""
    for values, kind in ((scaled("keda"), "ScaledObject"), (scaled("hpa"), "HorizontalPodAutoscaler")):
        spec = render(values).one(kind)["spec"]
        behavior = spec.get("behavior") or spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        probe = render(values).worker["startupProbe"]
        assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= probe["periodSeconds"] * probe["failureThreshold"]


def rights(values: Object) -> set[tuple[str, str, str, str]]:
    """The permissions of Strimzi's user: operation, kind, name, pattern."""
    acls = render(values).one("KafkaUser")["spec"]["authorization"]["acls"]
    found = {
        (each["operations"][0], *(each["resource"][part] for part in ("type", "name", "patternType"))) for each in acls
    }
    assert all(len(each["operations"]) == 1 for each in acls)
    assert len(found) == len(acls)
    return found


def documented_rights() -> set[tuple[str, str, str, str]]:
    """The commands of deploy/rights.md, in Strimzi's words."""
    text = (ROOT / "deploy" / "rights.md").read_text("utf-8").replace("\\\n", "")
    found = set()
    for operation, kind, name, rest in re.findall(
        r"--operation (\w+)\s+--(topic|group|transactional-id) (\S+)(.*)", text
    ):
        pattern = "prefix" if "prefixed" in rest else "literal"
        found.add((operation.capitalize(), kind.replace("transactional-id", "transactionalId"), name, pattern))
    return found


def test_strimzis_user_has_the_documented_rights_and_no_more() -> None:
    """The five of deploy/rights.md, which tests on a real broker hold to be enough and needed.

    They follow the names in the settings: topics, group, and the prefix of the transactional ids as the worker encodes it.
    """
    found = rights({"strimzi": STRIMZI})
    assert len(found) == 5
    assert found == documented_rights()
    settings = kafka(group_id="g/1%", input_topics=["i", "j"], output_topic="o", dead_letter_topic="d")
    names = {each[2:] for each in rights({**settings, "strimzi": STRIMZI})}
    literal = {(name, "literal") for name in ("i", "j", "g/1%", "o", "d")}
    assert literal | {("g%2F1%25/", "prefix")} == names


def test_strimzis_topics_fit_one_another_and_the_largest_record() -> None:
    """A topic's object has a name that Kubernetes takes; a dead letter has room for the largest input."""
    values = {
        "settings": {"kafka": {"input_topic": "News_Articles"}, "articles": {"max_record_bytes": 2_000_000}},
        "strimzi": {"cluster": "main", "topics": {"enabled": True}},
    }
    topics = {each["spec"]["topicName"]: each for each in render(values).all("KafkaTopic")}
    assert set(topics) == {"News_Articles", "entities", "articles.dead-letters"}
    assert topics["News_Articles"]["metadata"]["name"] == "news-articles"
    largest = {name: each["spec"]["config"]["max.message.bytes"] for name, each in topics.items()}
    assert largest["entities"] > 2_000_000
    assert largest["articles.dead-letters"] >= largest["News_Articles"] + 4096


def roll(before: Rendered, after: Rendered) -> bool:
    """Whether an upgrade from one to the other replaces the workers."""
    templates = [each.one("StatefulSet")["spec"]["template"] for each in (before, after)]
    return bool(templates[0] != templates[1])


def test_only_what_a_worker_reads_rolls_the_workers() -> None:
    """Every start loads a model, so only changes that a worker reads may cause one."""
    assert roll(render(), render({"settings": {"worker": {"publish_interval_ms": 100}}}))
    assert roll(render(), render({"image": {"tag": "0.2.0-cpu"}}))
    unrelated = {"replicas": 5, "monitoring": {"podMonitor": {"enabled": True}}, "networkPolicy": {"enabled": False}}
    assert not roll(render(), render(unrelated))
    assert not roll(render(), render({"autoscaling": {"mode": "hpa"}}))


def test_another_replay_is_another_job() -> None:
    """Kubernetes refuses to change one."""
    values = values_of(CHART / "ci" / "replay-values.yaml")
    names = {
        render({**values, "replay": {**values["replay"], **change}}).one("Job")["metadata"]["name"]
        for change in ({}, {"into": "third"}, {"group": "other"}, {"model": {"path": "third"}})
    }
    assert 4 == len(names)


def test_each_process_has_the_port_that_the_program_chooses() -> None:
    """One behind the other, from that of the settings on."""
    worker = render({"processes": 3}).worker
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    chosen = [Share(index, 3).of_health(settings_of(worker).health).port for index in range(3)]
    assert chosen == [ports[name] for name in ("health", "health-1", "health-2")]


def test_containers_run_commands_that_there_are() -> None:
    """And a model is prepared where there is room: beside its folder, and its downloads not in `/tmp`."""
    prepare = render(values_of(CHART / "ci" / "model-prepare-values.yaml")).pod["initContainers"][0]
    mounts = {mount["mountPath"] for mount in prepare["volumeMounts"] if not mount.get("readOnly")}
    environment = environment_of(prepare)
    assert {str(Path(environment[name]).parent) for name in ("MODEL_DIR", "HF_HOME")} <= mounts
    replay = render(values_of(CHART / "ci" / "replay-values.yaml")).one("Job")["spec"]["template"]["spec"][
        "containers"
    ][0]
    for container in (prepare, replay, render({"processes": 4}).worker):
        assert CliRunner().invoke(app, [*container["args"], "--help"]).exit_code == 0
