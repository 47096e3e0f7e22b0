"""What `enricher doctor --transactions` says when a right is missing, and that the rights on the page are sufficient."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from security.rights import Right, give
from security.secured import Secured
from security.working import Outcome, Place, place_at

from enricher.kafka.trials.promises import PROMISES

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "deploy" / "brokers.md"


def rights_of(place: Place, *labels: str) -> list[Right]:
    """Rights of the trials, by names like `CREATE topic`."""
    kinds = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
    prefix = f"{place.topics.group}-doctor-"
    return [
        Right(label, operation, kinds[kind], prefix, prefixed=True)
        for label in labels
        for operation, kind in [label.split()]
    ]


def tried(place: Place) -> tuple[Outcome, dict[str, dict[str, str]]]:
    """The command's exit code, and its checks by name."""
    outcome = place.run("doctor", "--transactions", "--json")
    text = outcome.said[outcome.said.index("\n{") :]
    report = json.JSONDecoder().raw_decode(text.strip())[0]
    return outcome, {check["check"]: check for check in report["checks"]}


def names_at(place: Place) -> list[str]:
    """Topics of trials that exist."""
    names = place.secured.admin.list_topics(timeout=10).topics
    return [name for name in names if name.startswith(f"{place.topics.group}-doctor-")]


def test_without_create_nothing_is_tried_and_the_right_is_named(secured: Secured) -> None:
    """The five rights of a worker are not sufficient, and the advice names all that are needed."""
    place = place_at(secured, "PASSWORDS")
    outcome, checks = tried(place)
    assert outcome.code == 4
    found = checks["topics of the trials"]
    assert f"Needed: CREATE on topics that begin with '{place.topics.group}-doctor-'" in found["seen"]
    assert "READ and DELETE on groups" in found["advice"]
    assert "clean-up" not in checks, "nothing was made, so nothing is left"
    assert not checks.keys() & {promise.name for promise in PROMISES}


def test_without_delete_one_topic_is_left_and_named(secured: Secured) -> None:
    """Deleting is tried with the first topic, before anything else is created."""
    place = place_at(secured, "PASSWORDS")
    give(secured, rights_of(place, "CREATE topic", "READ topic", "WRITE topic"))
    outcome, checks = tried(place)
    assert outcome.code == 4
    assert "Needed: DELETE on topics that begin with" in checks["topics of the trials"]["seen"]
    [left] = names_at(place)
    assert left in checks["clean-up"]["seen"]
    assert not checks.keys() & {promise.name for promise in PROMISES}


def test_a_right_that_only_some_trials_need_costs_only_those(secured: Secured) -> None:
    """Without READ on groups, trials that need no group still run."""
    place = place_at(secured, "PASSWORDS")
    give(secured, rights_of(place, "CREATE topic", "DELETE topic", "READ topic", "WRITE topic"))
    outcome, checks = tried(place)
    assert outcome.code == 4
    assert checks["commit and abort"]["verdict"] == "ok", checks
    assert checks["offsets in the transaction"]["verdict"] == "FAIL"
    assert "could not be tried" in checks["offsets in the transaction"]["seen"]
    assert "AUTHORIZATION_FAILED" in checks["offsets in the transaction"]["seen"]
    assert "clean-up" not in checks
    assert names_at(place) == []


def test_the_rights_of_the_page_are_enough(secured: Secured) -> None:
    """The rights of the page's table, and the five of a worker, whose transactional ids are used."""
    place = place_at(secured, "PASSWORDS")
    rows = re.findall(r"^\| `([A-Z`, ]+)` \| (topic|group)s that begin", PAGE.read_text("utf-8"), re.MULTILINE)
    labels = [f"{operation} {kind}" for operations, kind in rows for operation in operations.split("`, `")]
    assert len(labels) == 6
    give(secured, rights_of(place, *labels))
    outcome, checks = tried(place)
    assert outcome.code == 0, outcome.said
    assert {checks[promise.name]["verdict"] for promise in PROMISES} == {"ok"}
    assert "clean-up" not in checks
    assert names_at(place) == []
