"""The rights that the pages name are sufficient, and each is necessary and named when it is missing.

Those of a worker, and of `enricher doctor --transactions`, `lag` and `dead-letters redrive`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from security.secured import Secured
from security.working import Outcome, Place, Right, five_rights, give, place_at, take
from support.operating import delete_group
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.errors import BrokerError
from enricher.operate.doctor.promises import PROMISES
from enricher.worker.kafka.precheck import check_start
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.settings import load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

DEPLOY = Path(__file__).parents[2] / "deploy"
LABELS = ["input", "group", "output", "dead letters", "transactional id"]


def right_of(place: Place, label: str) -> Right:
    """One of the five."""
    return next(right for right in five_rights(place.topics) if right.label == label)


def wanted_words(place: Place, right: Right) -> str:
    """What the message must say: operation, kind of resource, its name."""
    kinds = {"group": "group", "transactional id": "transactional id"}
    # The right covers every worker of the group; the message has this one's own id.
    name = f"{place.topics.group}/worker-0" if right.prefixed else right.resource
    return f"{right.operation} on the {kinds.get(right.label, 'topic')} '{name}'"


def check_refusal(outcome: Outcome, place: Place, right: Right) -> None:
    """Exit code 4, and a message that names this right and no other."""
    assert outcome.code == 4, outcome.said
    assert outcome.message.endswith(f"Needed: {wanted_words(place, right)}")
    assert "Traceback" not in outcome.said


@pytest.mark.broker
@pytest.mark.parametrize("label", LABELS)
def test_a_right_that_is_taken_away_is_named_and_nothing_is_lost(secured: Secured, label: str) -> None:
    """Revoked while the worker runs, missing at a start, then granted: in the end every article has exactly one outcome."""
    place = place_at(secured, "PASSWORDS")
    right = right_of(place, label)
    places = place.publish(0, 20)
    with place.started("run") as worker:
        wait_until(lambda: len(place.outputs()) == len(places), PATIENCE_S, "the first articles are enriched")
        take(secured, right)
        places |= place.publish(100, 20)
        refused = worker.outcome()
    check_refusal(refused, place, right)
    check_refusal(place.work(), place, right)
    give(secured, [right])
    outcome = place.work()
    assert outcome.code == 0, outcome.said
    place.check_exactly_once(places)
    # A sixth right, which nobody needs to give: without it the worker trusts its settings, and says so.
    assert "DESCRIBE_CONFIGS" in refused.said + outcome.said


@pytest.mark.broker
@pytest.mark.parametrize("label", ["input", "output", "group"])
def test_a_start_without_a_right_is_refused_though_the_resource_is_shown(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """As one on which only DESCRIBE is allowed; a resource that is not shown is refused above. No model is loaded."""
    place = place_at(secured, "PASSWORDS", rights=False)
    missing = right_of(place, label)
    others = [right for right in five_rights(place.topics) if right != missing]
    give(secured, [*others, replace(missing, operation="DESCRIBE")])
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    config, needed = kafka_config(load_settings()), f"Needed: {wanted_words(place, missing)}"
    wait_until(
        lambda: refusal_of(config).endswith(needed), 60, needed
    )  # what a busy broker does not say is let through


@pytest.mark.broker
def test_doctor_names_the_right_that_is_missing(secured: Secured) -> None:
    """The transactional id is asked about as a worker would use it; the settings of topics are a right that nobody needs."""
    place = place_at(secured, "PASSWORDS", rights=False)
    give(secured, [right for right in five_rights(place.topics) if right.label != "transactional id"])
    outcome = place.run("--quiet", "doctor", "--only", "broker", "--json")
    assert outcome.code == 4, outcome.said
    checks = {each["check"]: each for each in json.loads(outcome.said[outcome.said.index("{") :])["checks"]}
    assert ["right: transactional id WRITE"] == [name for name, each in checks.items() if each["verdict"] == "FAIL"]
    assert checks[f"topic {place.topics.output}"]["seen"].endswith("its settings could not be read")


def refusal_of(config: KafkaConfig) -> str:
    """Why a start would end; empty if it would not."""
    try:
        check_start(config)
    except BrokerError as error:
        return str(error)
    return ""


@pytest.mark.broker
def test_offsets_set_names_the_right_that_it_needs(secured: Secured) -> None:
    """A worker without offsets refuses to start, with no right more; only the search reads the outputs."""
    place = place_at(secured, "PASSWORDS")
    places = place.publish(0, 20)
    assert place.work().code == 0
    delete_group(secured.admin_address, place.topics.group)
    places |= place.publish(100, 20)
    outcome = place.work()
    assert outcome.code == 2, outcome.said
    assert f"offsets set {place.topics.group} {place.topics.input} --at behind-outputs" in outcome.message
    command = ("offsets", "set", place.topics.group, place.topics.input, "--at", "behind-outputs")
    outcome = place.run(*command)
    assert outcome.code == 4, outcome.said
    assert f"searching '{place.topics.output}' for the newest outputs" in outcome.said
    assert "Needed: READ on a topic" in outcome.said
    topics = (place.topics.output, place.topics.dead_letters)
    give(secured, [Right("search", "READ", ResourceType.TOPIC, topic) for topic in topics])
    outcome = place.run(*command)
    assert outcome.code == 0, outcome.said
    outcome = place.work()
    assert outcome.code == 0, outcome.said
    place.check_exactly_once(places)


def test_the_page_names_the_rights() -> None:
    """Operation and resource type of each: the page and these tests agree."""
    rows = [
        line
        for line in (DEPLOY / "rights.md").read_text("utf-8").splitlines()
        if line.startswith(("| `READ", "| `WRITE"))
    ]
    found = {tuple(cell.strip(" `") for cell in row.strip("|").split("|")[:2]) for row in rows}
    assert found == {
        ("READ", "topic, the input"),
        ("READ", "group"),
        ("WRITE", "topic, the output"),
        ("WRITE", "topic, the dead letters"),
        ("WRITE", "transactional id"),
    }


@pytest.mark.broker
def test_the_rights_of_the_page_are_enough(secured: Secured) -> None:
    """The rights of the page's table, and the five of a worker, whose transactional ids are used."""
    place = place_at(secured, "PASSWORDS")
    kinds, prefix = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}, f"{place.topics.group}-doctor-"
    rows = re.findall(
        r"^\| `([A-Z`, ]+)` \| (topic|group)s that begin", (DEPLOY / "promises.md").read_text("utf-8"), re.MULTILINE
    )
    rights = [
        Right(f"{operation} {kind}", operation, kinds[kind], prefix, prefixed=True)
        for operations, kind in rows
        for operation in operations.split("`, `")
    ]
    assert len(rights) == 5
    give(secured, rights)
    outcome = place.run("doctor", "--transactions", "--json")
    assert outcome.code == 0, outcome.said
    report = json.JSONDecoder().raw_decode(outcome.said[outcome.said.index("\n{") :].strip())[0]
    checks = {check["check"]: check["verdict"] for check in report["checks"]}
    assert {checks[promise.name] for promise in PROMISES} == {"ok"}
    assert "clean-up" not in checks
    topics = secured.admin.list_topics(timeout=PATIENCE_S).topics
    assert [name for name in topics if name.startswith(prefix)] == []


def ends(place: Place, command: str, code: int, words: str) -> bool:
    """Whether a command ends with this code and these words. A client may hide a right for the whole request timeout."""
    outcome = place.run(*command.split())
    assert "Traceback" not in outcome.said
    return outcome.code == code and words in outcome.said


@pytest.mark.broker
def test_two_rights_are_enough_for_lag_and_each_is_needed(secured: Secured) -> None:
    """READ on the topic and DESCRIBE on the group are enough; a missing one is named, with exit code 4."""
    place = place_at(secured, "PASSWORDS", rights=False)
    place.publish(0, 0)
    read_topic = Right("input", "READ", ResourceType.TOPIC, place.topics.input)
    describe_group = Right("group", "DESCRIBE", ResourceType.GROUP, place.topics.group)

    says = partial(ends, place, "lag --max-lag 0")
    give(secured, [read_topic, describe_group])
    wait_until(lambda: says(9, "1 behind in 1 of 4 partitions"), PATIENCE_S, "two rights are enough")
    take(secured, describe_group)
    wait_until(lambda: says(4, f"READ on the group '{place.topics.group}'"), PATIENCE_S, "the group's right is named")
    give(secured, [describe_group])
    take(secured, read_topic)
    wait_until(lambda: says(4, f"READ on the topic '{place.topics.input}'"), PATIENCE_S, "the topic's right is named")


def redrive_rights_of(topics: Topics) -> dict[str, Right]:
    """Each with the words by which a message names it."""
    ids, group = f"{topics.group}/", f"{topics.group}.redrive"
    return {
        "READ on a topic": Right("input", "READ", ResourceType.TOPIC, topics.input),
        f"{topics.dead_letters}": Right("dead letters", "READ", ResourceType.TOPIC, topics.dead_letters),
        "READ on the consumer group": Right("group", "READ", ResourceType.GROUP, group),
        "WRITE to write to it": Right("to the input", "WRITE", ResourceType.TOPIC, topics.input),
        "WRITE on the transactional id": Right("ids", "WRITE", ResourceType.TRANSACTIONAL_ID, ids, prefixed=True),
    }


@pytest.mark.broker
def test_five_rights_are_enough_for_a_redrive_and_each_is_needed(secured: Secured) -> None:
    """Each is taken away, named with exit code 4, and given back; then everything is sent."""
    place = place_at(secured, "PASSWORDS")
    place.publish(0, 0)
    place.publish(100, 40)  # behind the first letter's source, or there would be nothing to read
    give(secured, [Right("letters", "READ", ResourceType.TOPIC, place.topics.dead_letters)])
    assert 0 == place.work().code
    fresh = redrive_rights_of(place.topics)
    give(secured, [fresh["READ on the consumer group"], fresh["WRITE to write to it"]])
    for words, right in fresh.items():
        take(secured, right)
        wait_until(partial(ends, place, "dead-letters redrive", 4, words), PATIENCE_S, words)
        give(secured, [right])
    wait_until(lambda: ends(place, "dead-letters redrive", 0, "2 sent"), PATIENCE_S, "five rights are enough")
