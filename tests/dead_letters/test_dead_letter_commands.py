"""`enricher dead-letters list` and `show`: counts, reasons, and no article's text unless it is asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
from commands.cli_runner import run
from dead_letters.lettering import Made, die
from kafka.harness import Sent, publish, transaction
from support.reading import read_all
from support.topics import Topics

from enricher.errors import FatalError, SettingsError

HOSTILE = Sent(
    b"k\x1b[2J", b'{"secret": "\x1b]0;owned\x07Merkel"}', ((("h\x1b[1m"), b"\x9b31m\xff"), ("enricher.dlq.stage", b"x"))
)


@pytest.fixture
def letters(topics: Topics) -> Topics:
    """A few dead letters, one of them hostile, and what is none."""
    too_large = "the enriched record takes %d bytes, articles.max_record_bytes is 1000"
    letters = [
        Made((0, n), Sent(b"k", b"x"), "publish", "OutputTooLarge", age_s=7_200.0, message=too_large % n)
        for n in (7, 8)
    ]
    die(topics, letters)
    die(topics, [Made((1, 0), HOSTILE), Made((1, 1), Sent(b"gone", None))])
    publish(topics.bootstrap_servers, topics.dead_letters, [Sent(b"k", b"x")])
    with transaction(topics.bootstrap_servers, f"{topics.group}/aborted", commit=False) as producer:
        producer.produce(topics.dead_letters, b"x", b"x")
    return topics


@pytest.mark.broker
def test_list_counts_by_what_the_headers_say(letters: Topics) -> None:
    """As JSON and as a table; aborted records are not there."""
    counts = json.loads(run("dead-letters", "list", "--json", env=letters.environment).stdout)
    assert (4, 1) == (counts["total"], counts["not_ours"])
    assert {"publish": 2, "decode": 2} == counts["by_stage"]
    assert {"OutputTooLarge": 2, "InvalidArticle": 2} == counts["by_type"]
    assert {f"{letters.input}-0": 2, f"{letters.input}-1": 2} == counts["by_source_partition"]
    assert [2, 2] == list(counts["by_hour"].values())
    reason = "the enriched record takes ... bytes..., ... is ..."
    assert {reason: 2, "other": 2} == counts["by_reason"]
    shown = run("dead-letters", "show", counts["examples"][reason], env=letters.environment).stdout
    assert "error.message: the enriched record takes 8 bytes, " in shown
    table = run("dead-letters", "list", env=letters.environment).stdout
    assert counts["examples"]["other"] in table
    assert "OutputTooLarge" in table
    assert f"4 dead letters in {letters.dead_letters}, 1 records that are no dead letters" in table


@pytest.mark.broker
def test_show_gives_reason_and_headers_and_never_the_text(letters: Topics) -> None:
    """What a publisher wrote cannot control the terminal: neither in names nor in values."""
    place = next(
        f"{m.partition()}:{m.offset()}"
        for m in read_all(letters.bootstrap_servers, letters.dead_letters)
        if m.key() == HOSTILE.key
    )
    shown = run("dead-letters", "show", place, env=letters.environment).stdout
    assert "enricher.dlq.error.message: not JSON" in shown
    assert "input.enricher.dlq.stage: x" in shown
    assert "Merkel" not in shown
    assert not {"\x1b", "\x9b", "\x07"} & set(shown)
    piped = run("dead-letters", "show", place, "--bytes", env=letters.environment)
    assert piped.stdout_bytes == (HOSTILE.value or b"") + b"\n"
    on_screen = on_a_terminal(letters, place)
    assert b"Merkel" in on_screen
    assert not {0x1B, 0x07} & set(on_screen)


def on_a_terminal(topics: Topics, place: str) -> bytes:
    """What the command writes to a terminal for `--bytes`."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "enricher", "-q", "dead-letters", "show", place, "--bytes"]
    environment = {**os.environ, **topics.environment, "TERM": "dumb"}
    subprocess.run(command, env=environment, stdout=its, stderr=subprocess.DEVNULL, check=True)
    written = os.read(ours, 10_000)
    os.close(its)
    os.close(ours)
    return written


@pytest.mark.broker
def test_show_says_what_is_not_there(letters: Topics) -> None:
    """A place without a record, a partition that the topic does not have, and what is no place."""
    for place, kind, words in (
        ("1:99", FatalError, "no committed record at 1:99"),
        ("99:0", SettingsError, "has no partition 99: its partitions are 0 to"),
        ("1", SettingsError, "PARTITION:OFFSET"),
        ("1:-1", SettingsError, "PARTITION:OFFSET"),
    ):
        error = run("dead-letters", "show", place, env=letters.environment).exception
        assert type(error) is kind
        assert words in str(error)
