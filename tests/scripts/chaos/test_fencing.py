"""A worker that is fenced though nobody has its name exits, and a restart goes on. Brokers and late requests are real."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from support.lives import NAME, Field, Life
from support.patience import PATIENCE_S

from tools.chaos.rules import Api, Delay, Hold
from tools.chaos.scene import TRANSACTION_S
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

MESSAGE = "a restart goes on at the committed offsets"
RENEWED = "a request may have been sent twice: continuing with a new producer"
"""Said after a slow request. If that happens on a busy machine just then, the new producer has the newest epoch."""
SLOW_S = 0.26 * TRANSACTION_S
"""Delay each way: four requests take twice a transaction's timeout, but no connection is idle for too long."""


def restarts_and_goes_on(field: Field, life: Life) -> None:
    """Publish, and check that the worker exits with code 5, and that its restart enriches everything exactly once."""
    field.publish(5)
    assert wait_until(lambda: life.code is not None or field.committed() == field.published, PATIENCE_S), field.logs()
    if life.code is None:
        assert life.says(RENEWED), field.logs()
    else:
        assert (5, 1) == (life.code, life.says(MESSAGE)), field.logs()
        field.start(proxied=False)
    field.wait_until_committed()
    field.work(5)
    assert [] == field.failed()


def test_a_late_request_for_a_producer_s_id_fences_and_a_restart_goes_on(field: Field) -> None:
    """A repeated request's first copy arrives when the worker is already working, and makes its own epoch an old one."""
    field.proxy.apply(held := Hold(field.match(Api.INIT_PRODUCER_ID), hang_up=True))
    life = field.start(proxied=True)
    field.work(5)
    assert held.caught.is_set()
    field.let_go(held, Api.INIT_PRODUCER_ID)
    restarts_and_goes_on(field, life)


def test_a_transaction_that_the_broker_gave_up_ends_in_a_restart(field: Field) -> None:
    """Each request is answered in time, but together they exceed the timeout, and the broker takes the epoch away."""
    life = field.start(proxied=True)
    field.work(5)
    apis = (Api.PRODUCE, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
    field.proxy.apply(Delay(field.match(*apis), SLOW_S))
    restarts_and_goes_on(field, life)


def test_a_stranger_with_the_worker_s_id_fences_and_a_restart_goes_on(field: Field) -> None:
    """After a foreign script, or a newer process that died before it joined, nobody else would do the work."""
    life = field.start(proxied=False)
    field.work(5)
    stranger = Producer({"bootstrap.servers": field.servers, "transactional.id": f"{field.names.group}/{NAME}"})
    stranger.init_transactions(PATIENCE_S)
    stranger.close()
    restarts_and_goes_on(field, life)
