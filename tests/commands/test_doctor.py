"""`enricher doctor` against the real broker: a healthy set-up, and the ways in which one can be wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import pytest
from commands.cli_runner import run, unused_names
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.operating import alter, commit, write
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.topics import Topics, make_topics

from enricher.errors import BrokerError
from enricher.operate.doctor.broker import broker_findings
from enricher.operate.doctor.findings import Finding, Reporter, as_json, exit_code
from enricher.operate.doctor.keys import key_findings
from enricher.operate.topics.admin import Admin, ClusterView
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.settings import ArticleSettings, load_settings
from tools.kafka import Cluster
from tools.waiting import wait_until

pytestmark = pytest.mark.usefixtures("shared_models")
SIZES = ArticleSettings(max_record_bytes=1_000_000, max_dead_letter_bytes=16_000_000)


def findings(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, sizes: ArticleSettings = SIZES
) -> dict[str, Finding]:
    """The findings about the broker, by check."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {finding.check: finding for finding in broker_findings(kafka_config(load_settings()), sizes)}


def failed(found: Mapping[str, Finding]) -> list[str]:
    """The checks that failed."""
    return [check for check, finding in found.items() if finding.verdict == "FAIL"]


@pytest.mark.broker
def test_a_healthy_set_up_fails_in_nothing(topics: Topics) -> None:
    """Exit code 0 after checks of broker, rights, model and device, with a warning about the single replica."""
    result = run("doctor", "--json", env=topics.environment)
    assert result.exit_code == 0, result.output
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert {check["side"] for check in checks.values()} == {"settings", "broker", "model", "machine"}
    rights = {name: check["verdict"] for name, check in checks.items() if name.startswith("right: ")}
    assert len(rights) == 5
    assert set(rights.values()) == {"ok"}
    assert checks["broker version"]["verdict"] == "ok"
    assert checks["one partition per key"]["verdict"] == "ok"
    assert checks[f"topic {topics.output}"]["verdict"] == "warn"
    assert "Angela Merkel PER, United Nations ORG, Berlin LOC" in checks["one sentence"]["seen"]


@pytest.mark.broker
def test_the_trials_write_no_record(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even an uncommitted one, and the offsets of the group do not change."""
    servers = topics.bootstrap_servers
    commit(servers, topics.group, topics.input, {2: 5})
    found = findings(topics.environment, monkeypatch)
    assert failed(found) == []
    assert "committed on 1 of 4" in found[f"right: group {topics.group} READ"].seen
    committed = committed_and_ends(servers, topics.group, topics.input)
    assert {number: offset for number, (offset, _) in committed.items()} == {0: -1001, 1: -1001, 2: 5, 3: -1001}
    for topic in (topics.output, topics.dead_letters):
        assert read_all(topics.bootstrap_servers, topic, isolation="read_uncommitted") == []
        assert {0} == {end for _, end in committed_and_ends(servers, topics.group, topic).values()}


@pytest.mark.broker
def test_a_worker_s_own_transactional_id_is_never_used(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with the same settings can finish its transaction while doctor runs."""
    worker = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": f"{topics.group}/worker-0"})
    worker.init_transactions(PATIENCE_S)
    worker.begin_transaction()
    worker.produce(topics.output, b"{}", b"k")
    assert failed(findings(topics.environment, monkeypatch)) == []
    worker.commit_transaction(PATIENCE_S)
    assert [message.key() for message in read_all(topics.bootstrap_servers, topics.output)] == [b"k"]


@pytest.mark.broker
def test_a_stock_librdkafka_producer_beside_enricher_publish_is_noticed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tombstones may lie in other partitions than their articles; with murmur2 there is nothing to say."""
    for name, value in topics.environment.items():
        monkeypatch.setenv(name, value)
    config = kafka_config(load_settings())

    def publish(value: bytes | None, **properties: str) -> Finding:
        producer = Producer({"bootstrap.servers": topics.bootstrap_servers, **properties})
        for number in range(20):
            producer.produce(topics.input, value, b"article-%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        (finding,) = key_findings([config])
        return finding

    found = publish(b"{}", partitioner="murmur2_random")
    assert ("ok", "holds for the 20 keys of the newest records") == (found.verdict, found.seen)
    assert "ok" == publish(None, partitioner="murmur2_random").verdict
    found = publish(None)
    assert "warn" == found.verdict
    assert re.match(r"1\d of 20 keys have records in several partitions; 1\d have one where CRC32 puts it", found.seen)
    assert "partitioner=murmur2_random" in found.advice


@pytest.mark.broker
def test_keys_in_two_input_topics_are_noticed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing keeps the order of their records; keys that are in one topic each are right."""
    for name, value in topics.environment.items():
        monkeypatch.setenv(name, value)
    config = kafka_config(load_settings())
    lanes = [config, replace(config, input_topic=make_topics(topics.bootstrap_servers, 2).input)]
    for lane, name in zip(lanes, ("articles", "now"), strict=True):
        write(topics.bootstrap_servers, lane.input_topic, [{"value": b"{}", "key": b"%s-1" % name.encode()}])
    *_, finding = key_findings(lanes)
    assert ("one input topic per key", "ok") == (finding.check, finding.verdict)
    write(topics.bootstrap_servers, lanes[1].input_topic, [{"value": None, "key": b"articles-1"}])
    *_, finding = key_findings(lanes)
    assert ("warn", "1 of 2 keys have records in several input topics, among the newest records") == (
        finding.verdict,
        finding.seen,
    )
    assert [finding.check for finding in key_findings(lanes[:1])] == ["one partition per key"]


def test_no_broker_is_exit_code_4_with_the_reason() -> None:
    """The finding has the reason, where the client reports only 'transport failure'; the model is checked all the same."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "0.5"}
    result = run("doctor", env=environment)
    assert result.exit_code == 4, result.output
    assert "Connection refused" in " ".join(result.stdout.split())
    assert "one sentence" in result.stdout


def test_parts_can_be_chosen_and_an_absent_broker_is_told_at_once() -> None:
    """Without the model, and without asking the absent broker for articles; a part that there is not is refused."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "0.5"}
    result = run("doctor", "--only", "settings,broker", "--json", env=environment)
    assert ["settings", "broker"] == [check["check"] for check in json.loads(result.stdout)["checks"]]
    assert "FAIL broker: asking 127.0.0.1:1" in result.stderr
    refused = run("doctor", "--only", "brokers").exception
    assert "no part 'brokers'; the parts are settings, broker, registry, model" in str(refused)


def test_a_broker_has_three_seconds_for_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the request timeout of the worker is, unless it is less."""
    asked_s: list[float | None] = []

    def cluster(_admin: Admin, timeout_s: float | None = None) -> ClusterView:
        asked_s.append(timeout_s)
        raise BrokerError("away")

    monkeypatch.setattr(Admin, "cluster", cluster)
    for request_timeout_s in ("10", "0.5"):
        assert ["broker"] == failed(findings({"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": request_timeout_s}, monkeypatch))
    assert [3.0, 0.5] == asked_s


def test_wrong_settings_are_exit_code_2() -> None:
    """With invalid settings, in the environment or in librdkafka's properties, nothing else is checked."""
    assert run("doctor", env={"ENRICHER_KAFKA__GROUP": "x"}).exit_code == 2
    result = run("doctor", env={"ENRICHER_KAFKA__PROPERTIES": '{"no.such.property": "hunter2"}'})
    assert result.exit_code == 2
    assert "no.such.property" in result.stdout
    assert "hunter2" not in result.output


@pytest.mark.parametrize("name", ["oauth_cb", "error_cb", "stats_cb", "throttle_cb", "logger", "on_delivery", "acks"])
def test_properties_that_no_client_may_have_are_a_finding_about_settings(name: str) -> None:
    """Also if only the settings are checked: a function is no setting, and code is not taken from one."""
    properties = json.dumps({name: "hidden"})
    result = run("doctor", "--only", "settings", "--json", env={"ENRICHER_KAFKA__PROPERTIES": properties})
    (found,) = json.loads(result.stdout)["checks"]
    assert (2, "settings", "FAIL") == (result.exit_code, found["check"], found["verdict"])
    assert f"kafka.properties may not set '{name}'" in found["seen"]
    assert "hidden" not in result.output


def test_a_secret_that_cannot_be_read_is_a_finding_about_settings() -> None:
    """The file belongs to the settings that name it; no broker is needed to see that it is missing."""
    properties = json.dumps({"sasl.password": {"file": "/nowhere/password"}})
    result = run("doctor", "--only", "settings", "--json", env={"ENRICHER_KAFKA__PROPERTIES": properties})
    (found,) = json.loads(result.stdout)["checks"]
    assert (2, "FAIL") == (result.exit_code, found["verdict"])
    assert "/nowhere/password, which cannot be read" in found["seen"]


def test_windows_that_do_not_suit_the_model_are_a_finding() -> None:
    """Only the model tells how long its windows may be; the checks after it still run."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "0.5"}
    result = run("doctor", env=environment | {"ENRICHER_BATCHING__OVERLAP_TOKENS": "120"})
    shown = " ".join(result.stdout.split())
    assert "batching.overlap_tokens is 120" in shown, result.output
    assert "cores" in shown


def test_a_setting_that_does_not_fit_its_task_is_a_finding_about_tasks() -> None:
    """Only the checkpoint tells what its task may be asked."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "0.5"}
    tasks = '{"names": {"source": "newswire-e5", "pooling": "max"}}'
    result = run("doctor", "--json", env=environment | {"ENRICHER_TASKS": tasks})
    found = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["tasks"]["verdict"] == "FAIL", result.output
    assert "tasks.names.pooling has no effect" in found["tasks"]["seen"]
    assert "[tasks]" in found["tasks"]["advice"]


@pytest.mark.broker
def test_a_model_that_is_not_there_is_exit_code_3(topics: Topics) -> None:
    """With a working broker, the exit code is the model's."""
    result = run("doctor", env=topics.environment | {"ENRICHER_MODEL__SOURCE": "no-such-folder"})
    assert result.exit_code == 3, result.output
    assert "no-such-folder" in result.stdout


@pytest.mark.broker
def test_a_missing_topic_fails_and_is_not_created(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names it with advice, the other checks go on, and looking does not create it."""
    missing = f"{topics.output}-missing"
    environment = topics.environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": missing}
    for _ in range(2):
        found = findings(environment, monkeypatch)
        assert failed(found) == [f"topic {missing}"]
    assert "topics create" in found[f"topic {missing}"].advice


@pytest.mark.broker
def test_unequal_partition_counts_fail(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """With unequal counts, the order per key is lost between input and output."""
    odd = f"{topics.output}-odd"
    environment = topics.environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": odd}
    assert run("topics", "create", "--partitions", "3", env=environment).exit_code == 0
    found = findings(environment, monkeypatch)
    assert failed(found) == [f"partitions of {odd}"]


@pytest.mark.broker
def test_an_input_topic_that_keeps_compression_is_a_warning(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is Kafka's default; the finding has the command that changes it, after which the check is ok."""
    check = f"compression of {topics.input}"
    before = findings(topics.environment, monkeypatch)[check]
    assert (before.verdict, before.seen.split(":")[0]) == ("warn", "producer")
    assert f"--topic {topics.input} --add-config compression.type=uncompressed" in before.advice
    alter(topics.bootstrap_servers, topics.input, {"compression.type": "uncompressed"})
    assert findings(topics.environment, monkeypatch)[check].verdict == "ok"


@pytest.mark.broker
def test_a_topic_with_too_small_a_message_limit_fails(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too small for a single record, or for the client's batches of small ones."""
    found = findings(
        topics.environment, monkeypatch, ArticleSettings(max_record_bytes=20_000_000, max_dead_letter_bytes=16_000_000)
    )
    assert failed(found) == [f"max.message.bytes of {topics.output}"]
    assert "MAX_RECORD_BYTES" in found[f"max.message.bytes of {topics.output}"].advice
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "500000"})
    found = findings(
        topics.environment, monkeypatch, ArticleSettings(max_record_bytes=500_000, max_dead_letter_bytes=16_000_000)
    )
    assert failed(found) == [f"max.message.bytes of {topics.output}"]
    assert "batch.size" in found[f"max.message.bytes of {topics.output}"].advice


@pytest.mark.broker
def test_compaction_and_records_without_keys_are_warnings(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted output refuses records without a key, and the input has such articles."""
    alter(topics.bootstrap_servers, topics.output, {"cleanup.policy": "compact"})
    write(topics.bootstrap_servers, topics.input, [{"value": b"{}"}, {"value": b"{}", "key": b"k"}])
    found = findings(topics.environment, monkeypatch)
    assert failed(found) == []
    assert found[f"cleanup of {topics.output}"].verdict == "warn"
    assert found["keys of articles"].seen == "1 of the newest 2 records have no key"


@pytest.mark.broker
def test_a_topic_that_can_not_be_written_fails(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """min.insync.replicas is above the number of replicas, which the settings show."""
    alter(topics.bootstrap_servers, topics.output, {"min.insync.replicas": "2"})
    found = findings(topics.environment | {"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"}, monkeypatch)
    assert f"replication of {topics.output}" in failed(found)


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Cluster]:
    """A broker with an authorizer; clients may do everything that no rule denies."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nobody",
    }
    with Cluster(nodes=1, properties=properties) as cluster:
        yield cluster


@pytest.mark.broker
@pytest.mark.parametrize(
    ("resource", "operation", "check"),
    [
        ("input", "READ", "right: {input} READ"),
        ("output", "WRITE", "right: {output} WRITE"),
        ("dead_letters", "WRITE", "right: {dead_letters} WRITE"),
        ("group", "READ", "right: group {group} READ"),
        ("transactional_id", "WRITE", "right: transactional id WRITE"),
        ("output", "DESCRIBE_CONFIGS", None),
    ],
)
def test_each_missing_right_is_named(
    strict_broker: Cluster, monkeypatch: pytest.MonkeyPatch, resource: str, operation: str, check: str | None
) -> None:
    """Exactly the check of the denied right fails; DescribeConfigs is not needed."""
    patience = {"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "60", "ENRICHER_WORKER__STALL_TIMEOUT_S": "120"}
    environment = unused_names(strict_broker.bootstrap_servers) | patience
    assert run("topics", "create", "--partitions", "2", env=environment).exit_code == 0
    roles = {"input": "INPUT_TOPIC", "output": "OUTPUT_TOPIC", "dead_letters": "DEAD_LETTER_TOPIC", "group": "GROUP_ID"}
    names = {role: environment[f"ENRICHER_KAFKA__{setting}"] for role, setting in roles.items()}
    name = names.get(resource, f"{names['group']}/worker-0/doctor")
    kinds = {"group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}
    kind = kinds.get(resource, ResourceType.TOPIC)
    deny(strict_broker, kind, name, AclOperation[operation])
    found = findings(environment, monkeypatch)
    assert failed(found) == ([check.format(**names)] if check else [])
    if check is None:
        assert found[f"settings of {names['output']}"].seen == "could not be read"
    else:
        refusal = (
            "the broker would refuse it" if operation == "WRITE" and kind is ResourceType.TOPIC else "AUTHORIZATION"
        )
        assert refusal in found[check.format(**names)].seen


def test_the_exit_code_is_that_of_the_worst_side() -> None:
    """Settings come before the broker, the broker before the model; warnings alone give 0."""
    broker, model, machine = (Reporter(side).fail("x", "", "") for side in ("broker", "model", "machine"))
    assert exit_code([Reporter("broker").warn("x", "", "")]) == 0
    assert exit_code([model, broker]) == 4
    assert exit_code([model]) == 3
    assert exit_code([machine, broker, Reporter("settings").fail("x", "", "")]) == 2
    assert as_json([model])["exit_code"] == 3


def deny(cluster: Cluster, kind: ResourceType, name: str, operation: AclOperation) -> None:
    """Deny one right to all clients, which are anonymous here, and allow the others by name."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    rules = [(operation, AclPermissionType.DENY), (AclOperation.ALL, AclPermissionType.ALLOW)]
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation_, permission)
        for operation_, permission in rules
    ]
    for future in admin.create_acls(bindings).values():
        future.result(timeout=PATIENCE_S)
    # The controller has them; the broker's authorizer gets them a little later.
    of_resource = AclBindingFilter(
        kind,
        name,
        ResourcePatternType.LITERAL,
        cast("str", None),
        cast("str", None),
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert wait_until(
        lambda: len(admin.describe_acls(of_resource).result(timeout=PATIENCE_S)) == len(bindings), PATIENCE_S
    )
