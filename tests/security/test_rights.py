"""The five rights of `deploy/rights.md` are sufficient, and each is necessary and named when it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ResourceType
from kafka.harness import wait_until
from security.rights import Right, five_rights, give, take
from security.secured import Secured
from security.working import Outcome, Place, place_at

PAGE = Path(__file__).parents[2] / "deploy" / "rights.md"
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
        wait_until(lambda: len(place.outputs()) == len(places), 180, "the first articles are enriched")
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


def delete_offsets(place: Place) -> None:
    """As retention does for a group without members for a week."""

    def deleted() -> bool:
        [future] = place.secured.admin.delete_consumer_groups([place.topics.group]).values()
        try:
            future.result(20)
        except KafkaException:  # the member that has left is not forgotten yet
            return False
        return True

    wait_until(deleted, 60, "the group is deleted")


@pytest.mark.broker
def test_without_offsets_a_worker_may_not_go_on_blindly_and_names_the_right_that_it_needs(secured: Secured) -> None:
    """Only the outputs tell where the group stood: without READ on them it refuses to start, with it nothing is doubled."""
    place = place_at(secured, "PASSWORDS")
    places = place.publish(0, 20)
    assert place.work().code == 0
    delete_offsets(place)
    places |= place.publish(100, 20)
    outcome = place.work()
    assert outcome.code == 4, outcome.said
    assert f"READ on the topic '{place.topics.output}'" in outcome.message
    assert "kafka.start=beginning" in outcome.message
    topics = (place.topics.output, place.topics.dead_letters)
    give(secured, [Right("resume", "READ", ResourceType.TOPIC, topic) for topic in topics])
    outcome = place.work()
    assert outcome.code == 0, outcome.said
    place.check_exactly_once(places)


@pytest.mark.broker
def test_a_right_on_another_resource_is_not_enough(secured: Secured) -> None:
    """Negative control: without any right the broker refuses to read."""
    place = place_at(secured, "PASSWORDS", rights=False)
    places = place.publish(0, 3)
    other = place_at(secured, "PASSWORDS")
    assert other.topics.input != place.topics.input
    outcome = place.work()
    assert outcome.code == 4, outcome.said
    assert place.outputs() == []
    assert places


def test_the_page_names_the_rights() -> None:
    """Operation and resource type of each: the page and these tests agree."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(("| `READ", "| `WRITE"))]
    found = {tuple(cell.strip(" `") for cell in row.strip("|").split("|")[:2]) for row in rows}
    assert found == {
        ("READ", "topic, the input"),
        ("READ", "group"),
        ("WRITE", "topic, the output"),
        ("WRITE", "topic, the dead letters"),
        ("WRITE", "transactional id"),
        # The two for the day when the offsets are gone.
        ("READ", "topic, the output"),
        ("READ", "topic, the dead letters"),
    }
