"""The trials of `enricher doctor --transactions` at a broker that stops answering are bounded, and never count as kept."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from kafka.clients import config_for
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.operate.doctor.promises import PROMISES
from enricher.operate.doctor.transactions import Trials
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Delay, Match

pytestmark = pytest.mark.broker

LIMIT_S = 10.0


def test_commits_without_an_answer_are_no_promise_kept(proxy: Proxy, topics: Topics) -> None:
    """The first trial reports that it was undecided, no other begins after the limit, and the topic is deleted."""
    config = config_for(topics, bootstrap_servers=proxy.addresses)
    with Trials(config) as trials:
        proxy.apply(silence := Delay(Match({Api.END_TXN}), 3600))
        outcomes = {result.promise.name: result.outcome for result in trials.results(LIMIT_S)}
    assert silence.caught.is_set()
    assert outcomes.keys() == {promise.name for promise in PROMISES}
    assert [name for name, outcome in outcomes.items() if outcome.holds] == []
    assert outcomes["commit and abort"].holds is None
    left = AdminClient({"bootstrap.servers": topics.bootstrap_servers}).list_topics(timeout=PATIENCE_S).topics
    assert [name for name in left if name.startswith(trials.name)] == []
