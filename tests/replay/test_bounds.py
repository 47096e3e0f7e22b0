"""The ends of a range, as they are written and as offsets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.clients import config_for
from kafka.harness import Sent, publish
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.errors import SettingsError
from enricher.operate.inspector import Inspector
from enricher.operate.replay import ranges_of
from enricher.worker.commands.topic_options import Bound, range_name

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-11-24", "2026-11-24T00:00Z", "2026-11-24T01:00+01:00", "2026-11-24 00:00:00"])
def test_a_time_has_one_name_however_it_is_written(text: str) -> None:
    """Processes of one replay may be started by different hands; the name has no spaces, which the metadata cannot hold."""
    bound = Bound.parse("--from", text)
    assert "2026-11-24T00:00:00" in bound.name
    assert datetime(2026, 11, 24, tzinfo=UTC) == bound.where
    assert " " not in range_name(bound, Bound.parse("--to", "end"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"a": 1}',
        '{"0": -1}',
        '{"0": true}',
        '{"0": 1.5}',
        '{"0": "1"}',
        "{" * 10_000,
        f'{{"{"9" * 5_000}": 1}}',
    ],
)
def test_a_file_that_holds_no_offsets_is_refused_with_an_example(tmp_path: Path, content: str) -> None:
    """Hostile ones too."""
    file = tmp_path / "offsets.json"
    file.write_text(content, "utf-8")
    with pytest.raises(SettingsError, match="not a JSON object of offsets by partition"):
        Bound.parse("--from", str(file))


def test_what_is_neither_a_time_nor_a_file_is_refused_with_what_it_takes() -> None:
    """So is a folder."""
    for text in ("yesterday", "", "/", "2026-13-01", "0001-01-01T00:00+14:00", "9" * 300):
        with pytest.raises(SettingsError, match="it takes 'beginning', 'end', a time"):
            Bound.parse("--to", text)


@pytest.mark.broker
def test_ranges_that_hold_nothing_or_lie_elsewhere_are_refused(topics: Topics, tmp_path: Path) -> None:
    """Empty, reversed, in the future, deleted by retention, not written yet, of partitions that there are not."""
    publish(topics.bootstrap_servers, topics.input, [Sent(f"k{n}".encode(), b"v") for n in range(40)])
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topics.input, 0, 3)]).values():
        future.result(PATIENCE_S)

    def bound(text: str) -> str:
        file = tmp_path / f"{abs(hash(text))}.json"
        file.write_text(text, "utf-8")
        return str(file)

    refused: list[tuple[str, str, str]] = [
        ("end", "end", "is empty"),
        ("beginning", "beginning", "is empty"),
        ("end", "beginning", "is reversed"),
        ("2026-01-02", "2026-01-01", "is not before"),
        ("2031-01-01", "end", "in the future"),
        ("beginning", "2031-01-01", "in the future"),
        ("2029-12-31", "end", "is empty"),
        (bound('{"0": 2}'), "end", "offset 2 of partition 0 is not in .*, use 3: the records before that were deleted"),
        (bound('{"0": 999}'), "end", "nothing has been written there yet"),
        (bound('{"9": 1}'), "end", "has no partition 9, only 0 to 3"),
        (bound('{"1": 5}'), bound('{"1": 2}'), "is reversed: from offset 5 to 2"),
        (bound('{"1": 1}'), bound('{"2": 2}'), "is empty"),
    ]
    with closing(Inspector(config_for(topics))) as ask:
        for start, end, why in refused:
            with pytest.raises(SettingsError, match=why):
                resolve(ask, topics.input, start, end)
        ends = ask.ends(topics.input, committed_only=False)
        ranges_of_all = {n: (3 if n == 0 else 0, end) for n, end in ends.items()}
        assert ranges_of_all == resolve(ask, topics.input, "2020-01-01", "end")
        for before_all in ("1900-01-01", "1969-12-31T23:59:59.999"):
            assert ranges_of_all == resolve(ask, topics.input, before_all, "end")
        assert {0: (3, 3), 1: (1, ends[1]), 2: (0, 0), 3: (0, 0)} == resolve(
            ask, topics.input, bound('{"1": 1}'), "end"
        )


resolve: Callable[[Inspector, str, str, str], object] = lambda ask, topic, start, end: ranges_of(  # noqa: E731  short
    ask, topic, Bound.parse("--from", start), Bound.parse("--to", end), NOW
)
