"""Killed at any point of its transactions, or without its broker for a while, a redrive sends every letter exactly once.

Letters without a key are the ones that matter: for others a second copy would be found superseded by the first.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from dead_letters.crashing_redrive import BLIND, CRASHING_REDRIVE
from dead_letters.lettering import Place, expected, publish_and_die, redrive, redriven, with_headers
from kafka.harness import Sent, publish
from support.forked import Forked
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.operate.dead_letters.letters import REDRIVE_COUNT


@dataclass(frozen=True, slots=True)
class Written:
    """What was written before the redrives: the places of all inputs, and the letters that are to be sent."""

    places: dict[Place, Sent]
    to_send: dict[Place, Sent]
    superseded: int
    often: int


def written(topics: Topics, letters: int, superseded: int, often: int) -> Written:
    """So many dead letters, of which some are superseded, and others were redriven often enough."""
    inputs = [Sent(None if n % 3 == 0 else b"k%d" % n, b"article %d" % n, (("n", b"%d" % n),)) for n in range(letters)]
    keyed = [n for n, sent in enumerate(inputs) if sent.key is not None]
    overtaken = {inputs[n].key for n in keyed[:: len(keyed) // superseded][:superseded]}
    guarded = [n for n, sent in enumerate(inputs) if sent.key not in overtaken][:: letters // (2 * often)][:often]
    for n in guarded:
        inputs[n] = with_headers(inputs[n], (REDRIVE_COUNT, b"3"))
    dead = publish_and_die(topics, inputs)
    newer = publish(topics.bootstrap_servers, topics.input, [Sent(key, b"newer") for key in sorted(overtaken, key=str)])
    assert (superseded, often) == (len(newer), len(guarded))
    often_redriven = {inputs[n] for n in guarded}
    to_send = {place: sent for place, sent in dead.items() if sent.key not in overtaken and sent not in often_redriven}
    assert letters - superseded - often == len(to_send)
    return Written(dead | newer, to_send, superseded, often)


def started(topics: Topics, point: str, per_transaction: int, *options: str) -> Forked:
    """A redrive that will die."""
    arguments = [CRASHING_REDRIVE, point, str(per_transaction), *options]
    return Forked(arguments, {**os.environ, **topics.environment})


def die_there(topics: Topics, points: Sequence[str], per_transaction: int) -> None:
    """One redrive after another is killed, each at its point."""
    for point in points:
        process = started(topics, point, per_transaction)
        assert -signal.SIGKILL == process.wait(PATIENCE_S), point


def assert_sent_once(topics: Topics, before: Written) -> None:
    """What was to be sent is in the input exactly once, as it was but for the count, and a second run does nothing."""
    assert expected(before.to_send) == redriven(topics, before.places)
    again = redrive(topics)
    assert (before.often, 0) == (again["loop_guard"], again.get("sent", 0))
    assert expected(before.to_send) == redriven(topics, before.places)


@pytest.mark.broker
def test_a_redrive_killed_at_any_point_is_continued_by_the_next(topics: Topics) -> None:
    """Killed three times in a row, and continued each time with what was not committed."""
    before = written(topics, 150, superseded=15, often=5)
    die_there(topics, ["offsets-sent:1", "produced:25", "committed:2"], per_transaction=20)
    sent_before = redriven(topics, before.places).total()
    assert 0 < sent_before < len(before.to_send)
    counts = redrive(topics)
    assert len(before.to_send) - sent_before == counts["sent"]
    assert_sent_once(topics, before)


@pytest.mark.broker
def test_a_redrive_that_does_not_look_for_what_it_sent_would_double(topics: Topics) -> None:
    """Negative control: letters are left between others, so the committed offset alone does not tell what was sent."""
    before = written(topics, 60, superseded=6, often=2)
    # All are sent first: which of them two transactions contain depends on the partitions that the client reads first.
    die_there(topics, ["committed:3", f"{BLIND}committed:1"], per_transaction=20)
    redrive(topics)
    found = redriven(topics, before.places)
    assert {1, 2} == set(found.values())
    assert expected(before.to_send) == Counter(set(found)), "nothing is lost"
