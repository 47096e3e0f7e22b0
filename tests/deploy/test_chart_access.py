"""Access: secrets by reference, network policies, permissions in Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deploy.chart_rendering import (
    CI_FILES,
    FULL_NAME,
    Object,
    containers_of,
    environment_of,
    needs_helm,
    refusal,
    render,
    values_of,
)

from deploy.chart.generator.layout import CHART, ROOT

pytestmark = [needs_helm, pytest.mark.slow]

SASL: Object = {"enabled": True, "existingSecret": "user"}


def properties_of(values: Object) -> Object:
    """The client properties that a worker gets."""
    found: Object = json.loads(environment_of(render(values).worker)["ENRICHER_KAFKA__PROPERTIES"])
    return found


def test_tls_with_an_authority() -> None:
    """The file in the settings is mounted."""
    values = {"kafka": {"tls": {"enabled": True, "ca": {"existingSecret": "ca", "key": "root.pem"}}}}
    assert properties_of(values) == {"security.protocol": "SSL", "ssl.ca.location": "/run/secrets/kafka-ca/root.pem"}


def test_mutual_tls_with_a_key_under_a_password() -> None:
    """Certificate, key and password are files."""
    client = {"existingSecret": "client", "passwordKey": "password"}
    found = properties_of({"kafka": {"tls": {"enabled": True, "client": client}}})
    assert found["ssl.certificate.location"] == "/run/secrets/kafka-client/tls.crt"
    assert found["ssl.key.location"] == "/run/secrets/kafka-client/tls.key"
    assert found["ssl.key.password"] == {"file": "/run/secrets/kafka-client/password"}


@pytest.mark.parametrize(("tls", "protocol"), [(True, "SASL_SSL"), (False, "SASL_PLAINTEXT")])
def test_a_password_is_read_from_a_file(tls: bool, protocol: str) -> None:  # noqa: FBT001  a parameter
    """So does the user name, unless it is among the values."""
    found = properties_of({"kafka": {"tls": {"enabled": tls}, "sasl": SASL}})
    assert found == {
        "security.protocol": protocol,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": {"file": "/run/secrets/kafka-sasl/username"},
        "sasl.password": {"file": "/run/secrets/kafka-sasl/password"},
    }
    assert properties_of({"kafka": {"sasl": {**SASL, "username": "news"}}})["sasl.username"] == "news"


def test_properties_of_ones_own_stand_beside_and_above() -> None:
    """Other mechanisms can be set as properties."""
    own = {"settings": {"kafka": {"properties": {"sasl.mechanism": "OAUTHBEARER", "client.rack": "a"}}}}
    found = properties_of({**own, "kafka": {"sasl": SASL}})
    assert [found["sasl.mechanism"], found["client.rack"]] == ["OAUTHBEARER", "a"]
    assert found["sasl.password"] == {"file": "/run/secrets/kafka-sasl/password"}


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.stem)
def test_every_file_that_a_setting_names_is_mounted(path: Path) -> None:
    """Volume, key and path agree in every pod."""
    for pod in render(values_of(path)).pods:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in containers_of(pod):
            text = json.dumps([environment_of(container), container.get("args")])
            for name, file in re.findall(r"/run/secrets/([-a-z]+)/([-.\w]+)", text):
                assert {"name": name, "mountPath": f"/run/secrets/{name}", "readOnly": True} in container[
                    "volumeMounts"
                ]
                assert file in {item["path"] for item in volumes[name]["secret"]["items"]}


def test_a_secret_in_a_volume_of_ones_own_is_there_wherever_kafka_is_asked() -> None:
    """A replay has the same settings as the workers, so it opens the same files."""
    mount = {"name": "keytab", "mountPath": "/run/secrets/own", "readOnly": True}
    volume = {"name": "keytab", "secret": {"secretName": "keytab"}}
    properties = {"properties": {"sasl.password": {"file": "/run/secrets/own/password"}}}
    rendered = render(
        {
            "replay": {"enabled": True, "into": "again", "group": "again"},
            "settings": {"kafka": properties},
            "extraVolumes": [volume],
            "extraVolumeMounts": [mount],
        }
    )
    assert len(rendered.pods) == 2
    for pod in rendered.pods:
        assert volume in pod["volumes"]
        assert all(mount in container["volumeMounts"] for container in pod["containers"])


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.stem)
def test_the_chart_makes_no_secret(path: Path) -> None:
    """The chart only refers to Secrets."""
    rendered = render(values_of(path))
    assert not rendered.all("Secret")
    variables = [entry for pod in rendered.pods for each in containers_of(pod) for entry in each["env"]]
    assert not [each for each in variables if "value" in each and "HEADERS" in each["name"]]


def test_a_password_in_the_values_is_refused_by_helm() -> None:
    """It is refused before it is stored, and the message does not repeat it."""
    said = refusal({"settings": {"kafka": {"properties": {"sasl.password": "canary"}}}})
    assert "/settings/kafka/properties/sasl.password" in said
    assert "canary" not in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kafka": {"sasl": {"enabled": True}}}, "kafka.sasl.enabled needs kafka.sasl.existingSecret"),
        ({"kafka": {"tls": {"client": {"existingSecret": "a"}}}}, "kafka.tls.enabled is false"),
        ({"kafka": {"tls": {"ca": {"existingSecret": "a"}}}}, "kafka.tls.enabled is false"),
        ({"kafka": {"sasl": {"existingSecret": "a"}}}, "kafka.sasl.enabled is false"),
        ({"model": {"from": "volume"}}, "model.from: volume needs model.volume.existingClaim"),
        ({"model": {"from": "init"}}, "model.from: init needs model.init.image, model.init.command or"),
        ({"strimzi": {"user": {"enabled": True}}}, "need strimzi.cluster"),
    ],
    ids=str,
)
def test_half_a_wish_is_refused_with_what_is_missing(values: Object, said: str) -> None:
    """Otherwise the pods could not start."""
    assert said in refusal(values)


def egress_ports(values: Object) -> set[int]:
    """The ports that a worker may reach."""
    rules = render(values).one("NetworkPolicy", FULL_NAME)["spec"]["egress"]
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_a_worker_reaches_kafka_dns_and_the_collector() -> None:
    """Ports follow from the settings, and can be set if the brokers listen on others."""
    kafka = {"settings": {"kafka": {"bootstrap_servers": "a:9093, b:9094,c"}}}
    assert egress_ports({}) == {53, 9092}
    assert egress_ports(kafka) == {53, 9092, 9093, 9094}
    assert egress_ports({**kafka, "networkPolicy": {"kafka": {"ports": [9443]}}}) == {53, 9443}
    assert egress_ports({"networkPolicy": {"dns": {"ports": [53, 5353]}}}) == {53, 5353, 9092}
    assert egress_ports({"otlp": {"endpoint": "http://collector:4318/"}}) == {53, 9092, 4318}
    assert egress_ports({"otlp": {"endpoint": "https://collector"}}) == {53, 9092, 443}


def namespace(name: str) -> Object:
    """All pods of a namespace, as a peer."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def test_a_worker_is_reached_only_on_its_health_port() -> None:
    """By default its own namespace and Prometheus'; otherwise the listed peers, or with an empty list the whole cluster."""
    usual = render({}).one("NetworkPolicy", FULL_NAME)["spec"]["ingress"][0]["from"]
    assert [{"podSelector": {}}, namespace("monitoring")] == usual
    anyone = render({"networkPolicy": {"health": {"from": []}}}).one("NetworkPolicy", FULL_NAME)["spec"]
    assert [{"namespaceSelector": {}}] == anyone["ingress"][0]["from"]
    peers = [namespace("observability")]
    policy = render({"networkPolicy": {"health": {"from": peers}}}).one("NetworkPolicy", FULL_NAME)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"ports": [{"port": "health", "protocol": "TCP"}], "from": peers}]


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
    """The five of deploy/rights.md, which tests on a real broker hold to be enough and needed."""
    found = rights({"strimzi": {"cluster": "main", "user": {"enabled": True}}})
    assert len(found) == 5
    assert found == documented_rights()


def test_the_rights_follow_the_names_in_the_settings() -> None:
    """They name the topics, the group, and the prefix of the transactional ids as the worker encodes it."""
    kafka = {"group_id": "g/1%", "input_topic": "i", "output_topic": "o", "dead_letter_topic": "d"}
    values = {"settings": {"kafka": kafka}, "strimzi": {"cluster": "main", "user": {"enabled": True}}}
    assert {("i", "literal"), ("g/1%", "literal"), ("o", "literal"), ("d", "literal"), ("g%2F1%25/", "prefix")} == {
        each[2:] for each in rights(values)
    }


def test_several_input_topics_are_made_read_and_named() -> None:
    """Each as the only one would be."""
    kafka = {"input_topics": ["articles.now", "articles"]}
    values = {
        "settings": {"kafka": kafka},
        "strimzi": {"cluster": "main", "user": {"enabled": True}, "topics": {"enabled": True}},
    }
    found = render(values)
    topics = {each["spec"]["topicName"]: each["spec"]["config"] for each in found.all("KafkaTopic")}
    assert {"articles.now", "articles", "entities", "articles.dead-letters"} == topics.keys()
    assert topics["articles"] == topics["articles.now"]
    read = {name for operation, _, name, _ in rights(values) if operation == "Read"}
    assert {"articles.now", "articles"} <= read
    assert kafka["input_topics"] == json.loads(environment_of(found.worker)["ENRICHER_KAFKA__INPUT_TOPICS"])


def test_strimzis_topics_fit_one_another_and_the_largest_record() -> None:
    """Partition counts are equal, records fit, and topics are kept when the release is uninstalled."""
    values: Object = {
        "settings": {"kafka": {"input_topic": "News_Articles"}, "articles": {"max_record_bytes": 2_000_000}},
        "strimzi": {"cluster": "main", "topics": {"enabled": True, "inputConfig": {"retention.ms": 604_800_000}}},
    }
    topics = {each["spec"]["topicName"]: each for each in render(values).all("KafkaTopic")}
    assert set(topics) == {"News_Articles", "entities", "articles.dead-letters"}
    assert {each["spec"]["partitions"] for each in topics.values()} == {12}
    assert topics["News_Articles"]["metadata"]["name"] == "news-articles"
    assert topics["News_Articles"]["spec"]["config"]["retention.ms"] == 604_800_000
    assert topics["entities"]["spec"]["config"]["max.message.bytes"] > 2_000_000
    largest = topics["News_Articles"]["spec"]["config"]["max.message.bytes"]
    assert topics["News_Articles"]["spec"]["config"]["compression.type"] == "uncompressed", "else it is no bound"
    assert largest == 16_000_000, "the largest whose dead letter keeps its value"
    assert topics["articles.dead-letters"]["spec"]["config"]["max.message.bytes"] >= largest + 4096
    for each in topics.values():
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert each["spec"]["config"]["min.insync.replicas"] == 2


def registry_properties_of(values: Object) -> Object:
    """What the worker's registry client gets."""
    environment = environment_of(render(values).worker)
    found: Object = json.loads(environment["ENRICHER_REGISTRY__PROPERTIES"])
    return found


def test_the_registry_has_its_own_certificates_and_credentials() -> None:
    """Secrets as files, under the names of Confluent's client."""
    auth = {"kind": "bearer", "existingSecret": "registry-token", "key": "token"}
    tls = {"ca": {"existingSecret": "registry-ca"}, "client": {"existingSecret": "registry-client"}}
    values = {"settings": {"registry": {"url": "https://registry"}}, "registry": {"auth": auth, "tls": tls}}
    assert registry_properties_of(values) == {
        "ssl.ca.location": "/run/secrets/registry-ca/ca.crt",
        "ssl.certificate.location": "/run/secrets/registry-client/tls.crt",
        "ssl.key.location": "/run/secrets/registry-client/tls.key",
        "bearer.auth.token": {"file": "/run/secrets/registry-auth/token"},
    }


@pytest.mark.parametrize(
    ("url", "ports"),
    [("https://registry", [443]), ("http://registry", [80]), ("https://a:8081, https://b:8085", [8081, 8085])],
)
def test_the_worker_reaches_the_registry_through_its_network_policy(url: str, ports: list[int]) -> None:
    """The ports follow from the URLs."""
    policy = render({"settings": {"registry": {"url": url}}}).one("NetworkPolicy")
    allowed = [[port["port"] for port in rule["ports"]] for rule in policy["spec"]["egress"] if "ports" in rule]
    assert ports in allowed


def test_without_a_registry_nothing_of_it_is_set() -> None:
    """Most releases have none."""
    assert not [name for name in environment_of(render({}).worker) if "REGISTRY" in name]


def test_indexers_reach_the_index_and_are_scraped() -> None:
    """Each of its nodes' ports, and only they; the PodMonitor selects what the Deployment makes."""
    rendered = render(values_of(CHART / "ci" / "index-values.yaml"))
    policy = rendered.one("NetworkPolicy", f"{FULL_NAME}-index")["spec"]
    assert "index" == policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert 9200 in ports
    worker = rendered.one("NetworkPolicy", FULL_NAME)["spec"]
    assert 9200 not in [port["port"] for rule in worker["egress"] for port in rule["ports"]]
    selected = rendered.one("PodMonitor", f"{FULL_NAME}-index")["spec"]["selector"]["matchLabels"]
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert selected.items() <= labels.items()


def test_strimzi_grants_indexers_what_they_need() -> None:
    """Their group, and their dead letters, whose topic is made too."""
    rendered = render(values_of(CHART / "ci" / "index-values.yaml"))
    acls = rendered.one("KafkaUser")["spec"]["authorization"]["acls"]
    granted = {(each["resource"]["type"], each["resource"]["name"], *each["operations"]) for each in acls}
    assert {("group", "enricher.index", "Read"), ("topic", "entities.index-dead-letters", "Write")} <= granted
    assert "entities.index-dead-letters" in {each["metadata"]["name"] for each in rendered.all("KafkaTopic")}
