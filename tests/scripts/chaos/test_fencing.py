"""A worker that is fenced exits, and a restart goes on: by a late request, or a second process of its name.

Brokers and late requests are real; nothing is lost or doubled. A stranger with its id is the fault `Rival`.
"""

from __future__ import annotations

import pytest
from support.lives import Field, Life
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


RIVALS = "two workers have the name 'worker-0'"
MORE = 70
"""Articles of seven seconds of load: longer than a session."""


def ended(field: Field) -> list[int]:
    """Which processes have ended, each with code 5 and the message."""
    codes = {number: life.code for number, life in enumerate(field.lives) if life.code is not None}
    assert {5} >= set(codes.values()), field.logs()
    assert all(field.lives[number].says(RIVALS) == 1 for number in codes), field.logs()
    return list(codes)


def wait_until_ended(field: Field, count: int) -> None:
    """Wait until so many processes have ended."""
    assert wait_until(lambda: sum(life.code is not None for life in field.lives) == count, PATIENCE_S), field.logs()


def goes_on(field: Field) -> None:
    """Wait until what is published meanwhile is enriched, for longer than a session."""
    enough = field.committed() + MORE
    assert wait_until(lambda: field.committed() >= enough, PATIENCE_S, 0.5), field.logs()


def test_the_older_of_two_processes_of_one_name_exits(field: Field) -> None:
    """The newer one goes on, and everything is enriched once."""
    with field.load():
        field.start(proxied=False)
        field.work(20)
        field.start(proxied=False)
        wait_until_ended(field, 1)
        goes_on(field)
    field.wait_until_committed()
    assert [0] == ended(field)
    assert [] == field.failed()


def test_of_two_processes_that_fence_each_other_one_goes_on(field: Field) -> None:
    """The older one has slow transactions, so it renews its producer after each, and may fence the newer one."""
    with field.load():
        field.start(proxied=True)
        field.work(20)
        field.proxy.apply(Delay(field.match(Api.END_TXN), 0.15))
        field.start(proxied=False)
        wait_until_ended(field, 1)
        goes_on(field)
    field.wait_until_committed()
    assert len(ended(field)) == 1
    assert [] == field.failed()


def test_if_both_are_fenced_a_restart_goes_on(field: Field) -> None:
    """The newer process's late request for its producer id fences the newer one too, after the older one."""
    field.start(proxied=False)
    field.work(20)
    field.proxy.apply(held := Hold(field.match(Api.INIT_PRODUCER_ID), hang_up=True))
    newer = field.start(proxied=True)
    with field.load():
        assert wait_until(lambda: newer.says("partitions assigned") > 0, PATIENCE_S), field.logs()
        field.let_go(held, Api.INIT_PRODUCER_ID)
        wait_until_ended(field, 2)
        field.start(proxied=False)
        goes_on(field)
    field.wait_until_committed()
    assert [0, 1] == ended(field)
    assert [] == field.failed()
