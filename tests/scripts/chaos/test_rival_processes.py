"""Two live processes of one name: the older one exits, or both do and a restart goes on; nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.lives import Field
from support.patience import PATIENCE_S

from tools.chaos.rules import Api, Delay, Hold
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

MESSAGE = "two workers have the name 'worker-0'"
MORE = 70
"""Articles of seven seconds of load: longer than a session."""


def ended(field: Field) -> list[int]:
    """Which processes have ended, each with code 5 and the message."""
    codes = {number: life.code for number, life in enumerate(field.lives) if life.code is not None}
    assert {5} >= set(codes.values()), field.logs()
    assert all(field.lives[number].says(MESSAGE) == 1 for number in codes), field.logs()
    return list(codes)


def wait_until_ended(field: Field, count: int) -> None:
    """Wait until so many processes have ended."""
    assert wait_until(lambda: sum(life.code is not None for life in field.lives) == count, PATIENCE_S), field.logs()


def goes_on(field: Field) -> None:
    """Wait until what is published meanwhile is enriched, for longer than a session."""
    enough = field.committed() + MORE
    assert wait_until(lambda: field.committed() >= enough, PATIENCE_S, 0.5), field.logs()


def together(field: Field) -> None:
    """Both processes start at the same time."""
    field.start(proxied=False)
    field.start(proxied=False)


def older_renews(field: Field) -> None:
    """The older process has slow transactions, so it renews its producer after each, and may fence the newer one."""
    field.start(proxied=True)
    field.work(20)
    field.proxy.apply(Delay(field.match(Api.END_TXN), 0.15))
    field.start(proxied=False)


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


@pytest.mark.parametrize("meeting", [together, older_renews])
def test_of_two_processes_that_fence_each_other_one_goes_on(field: Field, meeting: Callable[[Field], None]) -> None:
    """Which one depends on whose request came last."""
    with field.load():
        meeting(field)
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
