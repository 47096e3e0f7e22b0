"""Of two live processes of one name, which work under load side by side, one exits and the other continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.lives import Field, let_go
from support.patience import PATIENCE_S

from tools.chaos.frames import Api
from tools.chaos.rules import Delay, Hold
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

RIVAL = "a newer process has the name 'worker-0'"
MORE = 70
"""Articles of seven seconds of load: longer than a fenced process looks for its rival, and than a session."""


def newer(field: Field) -> None:
    """A second process starts while the first works."""
    field.start(proxied=False)
    field.work(20)
    field.start(proxied=False)


def together(field: Field) -> None:
    """Both processes start at the same time."""
    field.start(proxied=False)
    field.start(proxied=False)


def older_renews(field: Field) -> None:
    """The older process has slow transactions, so it renews its producer after each, and fences the newer one."""
    field.start(proxied=True)
    field.work(20)
    field.proxy.apply(Delay(field.match(Api.END_TXN), 0.15))
    field.start(proxied=False)


def both_fenced(field: Field) -> None:
    """The newer process's late request for its producer id arrives when both are members."""
    field.start(proxied=False)
    field.work(20)
    field.proxy.apply(held := Hold(field.match(Api.INIT_PRODUCER_ID), hang_up=True))
    newer = field.start(proxied=True)
    assert wait_until(lambda: newer.says("partitions assigned") > 0, PATIENCE_S), field.logs()
    let_go(field, held)


@pytest.mark.parametrize("meeting", [newer, together, older_renews, both_fenced])
def test_of_two_live_processes_of_one_name_one_goes_on(field: Field, meeting: Callable[[Field], None]) -> None:
    """One process exits with code 5 and names its rival; fencing stops, and everything is enriched once."""
    with field.load():
        meeting(field)
        assert wait_until(lambda: any(life.code is not None for life in field.lives), PATIENCE_S), field.logs()
        enough = field.committed() + MORE
        assert wait_until(lambda: field.committed() >= enough, PATIENCE_S, 0.5), field.logs()
    field.wait_until_committed()
    ended = [life for life in field.lives if life.code is not None]
    assert [5] == [life.code for life in ended], field.logs()
    assert ended[0].says(RIVAL) == 1
    assert sum(life.says("recovering: ") for life in field.lives) <= 4, field.logs()
    assert [] == field.failed()
