"""Settings to compare with, given as text."""

from __future__ import annotations

import pytest

from enricher.errors import SettingsError
from enricher.worker.settings import Settings
from tools.bench.policy import Policy


def test_settings_are_read_as_the_worker_reads_them() -> None:
    """Text becomes numbers, by group, as `Bench.settings_for` takes them."""
    policy = Policy.parse("batching.max_wait_ms=0, worker.publish_interval_ms=20", Settings())
    assert {"batching": {"max_wait_ms": 0.0}, "worker": {"publish_interval_ms": 20.0}} == policy.changes
    assert "other" == policy.name


@pytest.mark.parametrize(
    "text",
    [
        "batching.no_such=1",
        "batching.max_wait_ms=-1",
        "batching.max_wait_ms=soon",
        "kafka.group_id=mine",
        "batching.max_wait_ms",
        "max_wait_ms=1",
        "",
    ],
)
def test_what_is_no_setting_is_refused(text: str) -> None:
    """Unknown names, bad values, other groups: a comparison with a setting that changes nothing would say nothing."""
    with pytest.raises(SettingsError):
        Policy.parse(text, Settings())
