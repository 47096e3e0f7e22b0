"""The rights of `enricher dead-letters redrive` on the page are enough, and each is needed and named."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka.admin import ResourceType
from security.rights import Right, give, take
from security.secured import Secured
from security.working import Place, place_at
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics


def rights_of(topics: Topics) -> dict[str, Right]:
    """Each with the words by which a message names it."""
    ids, group = f"{topics.group}/", f"{topics.group}.redrive"
    return {
        "READ on a topic": Right("input", "READ", ResourceType.TOPIC, topics.input),
        f"{topics.dead_letters}": Right("dead letters", "READ", ResourceType.TOPIC, topics.dead_letters),
        "READ on the consumer group": Right("group", "READ", ResourceType.GROUP, group),
        "WRITE to write to it": Right("to the input", "WRITE", ResourceType.TOPIC, topics.input),
        "WRITE on the transactional id": Right("ids", "WRITE", ResourceType.TRANSACTIONAL_ID, ids, prefixed=True),
    }


def says(place: Place, code: int, words: str) -> bool:
    """Whether a redrive ends so. A client may hide a missing right for the whole request timeout."""
    outcome = place.run("dead-letters", "redrive")
    assert "Traceback" not in outcome.said
    return outcome.code == code and words in outcome.said


@pytest.mark.broker
def test_five_rights_are_enough_for_a_redrive_and_each_is_needed(secured: Secured) -> None:
    """Each is taken away, named with exit code 4, and given back; then everything is sent."""
    place = place_at(secured, "PASSWORDS")
    place.publish(0, 0)
    place.publish(100, 40)  # behind the first letter's source, or there would be nothing to read
    give(secured, [Right("letters", "READ", ResourceType.TOPIC, place.topics.dead_letters)])
    assert 0 == place.work().code
    fresh = rights_of(place.topics)
    give(secured, [fresh["READ on the consumer group"], fresh["WRITE to write to it"]])
    for words, right in fresh.items():
        take(secured, right)
        wait_until(partial(says, place, 4, words), PATIENCE_S, words)
        give(secured, [right])
    wait_until(lambda: says(place, 0, "2 sent"), PATIENCE_S, "five rights are enough")
