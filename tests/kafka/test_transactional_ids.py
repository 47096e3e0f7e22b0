"""Transactional ids: one for each worker of each group, whatever the names of groups and workers are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

from kafka.clients import config_for
from support.topics import Topics

from enricher.operate.doctor.broker import doctor_id
from enricher.worker.kafka.properties import KafkaConfig

NOWHERE = config_for(Topics("localhost:1", "i", "o", "d", "g", {}))
ODD = ["news", "news-en", "news/en", "news%2Fen", "news%2fen", "en-0", "0", "-", "/", "%", "//", "0/doctor", "-doctor"]


def config(group: str, instance: str) -> KafkaConfig:
    """Of that worker of that group."""
    return replace(NOWHERE, group_id=group, instance=instance)


def test_two_workers_of_two_groups_never_share_a_transactional_id() -> None:
    """Otherwise they would fence each other for ever: `news` + `en-0` and `news-en` + `0` did."""
    assert config("news", "en-0").transactional_id != config("news-en", "0").transactional_id
    assert config("news", "en/0").transactional_id != config("news/en", "0").transactional_id
    workers = list(product(ODD, ODD))
    assert len(workers) == len({config(*worker).transactional_id for worker in workers})


def test_an_ordinary_id_can_be_read() -> None:
    """It appears in messages, and in ACLs that people write."""
    assert "news/en-0" == config("news", "en-0").transactional_id
    assert "a%2Fb%25/c%2Fd" == config("a/b%", "c/d").transactional_id


def test_the_prefix_of_a_group_covers_its_workers_and_nobody_elses() -> None:
    """A prefixed right of one group gives nothing to another, even where one group's name begins with the other's."""
    for mine, other in [*combinations(ODD, 2), *combinations(reversed(ODD), 2)]:
        assert config(mine, other).transactional_id.startswith(config(mine, "any").transactional_prefix)
        assert not config(other, mine).transactional_id.startswith(config(mine, "any").transactional_prefix)


def test_a_trial_has_no_workers_id_and_needs_no_right_of_its_own() -> None:
    """It would fence a running worker, for instance one with an unusual name."""
    workers = {config(*worker).transactional_id for worker in product(ODD, ODD)}
    for group, instance in product(ODD, ODD):
        assert doctor_id(config(group, instance)) not in workers
        assert doctor_id(config(group, instance)).startswith(config(group, "any").transactional_prefix)
