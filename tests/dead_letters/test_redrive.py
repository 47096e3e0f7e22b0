"""`enricher dead-letters redrive` on a real broker: what is sent, what is left, and what a second run does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from commands.cli_runner import run
from dead_letters.lettering import Made, die, expected, publish_and_die, redrive, redriven, with_headers
from kafka.harness import Sent, header_list, publish
from support.reading import read_all
from support.topics import Topics

from enricher.errors import SettingsError
from enricher.operate.dead_letters import redriving
from enricher.operate.dead_letters.letters import REDRIVE_COUNT, REDRIVEN_LETTER

pytestmark = pytest.mark.broker


def inputs(count: int) -> list[Sent]:
    """Inputs with headers that a worker and a redrive must leave alone."""
    headers = (("trace", b"1"), ("trace", None), ("enricher.record.id", b"forged"), ("input.enricher.x", b""))
    return [Sent(b"k%d" % n, b'{"id": %d' % n, headers) for n in range(count)]


def test_each_goes_back_once_to_its_partition_as_it_was(topics: Topics) -> None:
    """Key, value and headers are the input's bytes, with the count behind them; null and empty are told apart.

    A tombstone is one: the null value of its dead letter is not said to be omitted.
    """
    odd = [Sent(None, b"no key"), Sent(b"", b"empty key"), Sent(b"empty", b""), Sent(b"\xff\xfe", b"\x00\xff")]
    places = publish_and_die(topics, [*inputs(20), *odd, Sent(b"gone", None)])
    assert redrive(topics) == {"sent": 25}
    assert expected(places) == redriven(topics, places)
    assert redrive(topics) == {}
    assert expected(places) == redriven(topics, places)


def test_a_superseded_letter_never_comes_back(topics: Topics) -> None:
    """Newer are: a record of its key, a tombstone, and another dead letter. Records of other keys are not."""
    places = publish_and_die(
        topics, [Sent(b"a", b"old"), Sent(b"b", b"old"), Sent(b"c", b"older"), Sent(b"d", b"only")]
    )
    newer = publish(topics.bootstrap_servers, topics.input, [Sent(b"a", b"new"), Sent(b"b", None), Sent(None, b"x")])
    failed_again = publish_and_die(topics, [Sent(b"c", b"newest")])
    assert redrive(topics, "--dry-run") == {"dry_run": True, "sent": 2, "superseded": 3}
    assert redrive(topics) == {"sent": 2, "superseded": 3}
    sent = failed_again | {place: each for place, each in places.items() if each.key == b"d"}
    assert expected(sent) == redriven(topics, places | newer | failed_again)
    assert redrive(topics) == {}


def test_what_a_selection_leaves_is_found_by_a_later_one(topics: Topics) -> None:
    """Letters are selected by type, time and number; each is sent once, in whichever run selects it first."""
    sent = inputs(12)
    places = publish(topics.bootstrap_servers, topics.input, sent)
    kinds = (("decode", "A", 0.0), ("decode", "B", 0.0), ("publish", "B", 0.0), ("publish", "A", 900_000.0))
    letters = [Made(place, each, *kinds[number % 4]) for number, (place, each) in enumerate(sorted(places.items()))]
    die(topics, letters)
    assert redrive(topics, "--type", "A", "--until", "2020-01-01") == {"not_selected": 12}
    assert redrive(topics, "--since", "2200-01-01") == {"not_selected": 12}
    assert redrive(topics, "--type", "B") == {"sent": 6, "not_selected": 6}
    assert "sent" not in redrive(topics, "--type", "B")
    assert redrive(topics, "--type", "A", "--max", "3")["sent"] == 3
    assert redrive(topics, "--since", "2020-01-01T00:00", "--until", "2200-01-01", "--max", "2")["sent"] == 2
    assert redrive(topics) == {"sent": 1}
    assert redrive(topics) == {}
    assert expected(places) == redriven(topics, places)


def test_a_reason_selects_and_one_that_no_letter_has_sends_nothing(topics: Topics) -> None:
    """Nor does a type that no letter has: all letters are counted as not selected."""
    places = publish(topics.bootstrap_servers, topics.input, inputs(6))
    messages = ("id is missing at /uuid", "id is missing at /id", "value is empty")
    die(topics, [Made(*each, message=messages[n % 3]) for n, each in enumerate(sorted(places.items()))])
    for options in (("--reason", "id is missing"), ("--type", "InvalidArticel")):
        assert redrive(topics, *options) == {"not_selected": 6}
    assert not redriven(topics, places)
    assert redrive(topics, "--reason", "id is missing...") == {"sent": 4, "not_selected": 2}
    assert redrive(topics) == {"sent": 2}
    assert redrive(topics, "--reason", "value is empty") == {}
    assert expected(places) == redriven(topics, places)


def test_a_time_range_without_times_is_refused() -> None:
    """Before anything is asked."""
    error = run("dead-letters", "redrive", "--since", "2026-01-02", "--until", "2026-01-02T00:00").exception
    assert isinstance(error, SettingsError)
    assert "is not before --until 2026-01-02" in str(error)


def test_the_loop_guard_leaves_what_failed_often_enough(topics: Topics) -> None:
    """The count is raised with each redrive; a larger bound finds the letter again. A count that is no number is 0."""
    often, forged = inputs(2)
    often, forged = with_headers(often, (REDRIVE_COUNT, b"3")), with_headers(forged, (REDRIVE_COUNT, b"\xff9x"))
    places = publish_and_die(topics, [often, forged])
    assert redrive(topics) == {"sent": 1, "loop_guard": 1}
    assert redrive(topics) == {"loop_guard": 1}
    assert redrive(topics, "--max-redrives", "4") == {"sent": 1}
    counts = [
        value for _, _, _, headers in redriven(topics, places) for name, value in headers if name == REDRIVE_COUNT
    ]
    assert sorted(map(str, counts)) == ["b'1'", "b'4'"]


def test_what_was_omitted_is_taken_from_the_input(topics: Topics) -> None:
    """The value, the headers and the key, as long as the input has the record; the others are named as not available."""
    large = [
        Sent(b"value", b"v" * 9_000, (("h", b"1"),)),
        Sent(b"headers", b"v" * 9_000, (("h", b"x" * 9_000),)),
        Sent(b"k" * 9_000, b"v" * 9_000),
    ]
    places = publish(topics.bootstrap_servers, topics.input, large)
    gone = Made((0, 10_000), Sent(b"gone", b"v" * 9_000))
    die(topics, [*(Made(place, sent) for place, sent in sorted(places.items())), gone], max_bytes=5_000)
    assert redrive(topics) == {"sent": 3, "not_available": 1}
    assert expected(places) == redriven(topics, places)
    assert redrive(topics) == {"not_available": 1}


def test_a_forged_letter_that_names_the_input_of_another_is_not_available(topics: Topics) -> None:
    """It has omitted its value, and the record at its source has another key. Letters behind it are sent."""
    large = [Sent(b"key", b"v" * 9_000), Sent(b"next", b"v" * 9_000)]
    places = publish(topics.bootstrap_servers, topics.input, large)
    letters = [Made(place, sent) for place, sent in sorted(places.items())]
    forged = [replace(each, sent=Sent(key, each.sent.value)) for each in letters for key in (b"forged", None)]
    die(topics, [*forged, *letters], max_bytes=5_000)
    assert redrive(topics) == {"sent": 2, "not_available": 4}
    assert expected(places) == redriven(topics, places)


def test_what_is_not_ours_is_left_alone(topics: Topics) -> None:
    """Records without our headers, or with broken ones, and dead letters of another topic, or of an earlier one."""
    places = publish(topics.bootstrap_servers, topics.input, inputs(1))
    [(place, sent)] = places.items()
    die(
        topics,
        [
            Made(place, sent, topic="another"),
            Made(place, sent, topic_id="AAAAAAAAAAAAAAAAAAAAAA"[:21] + "Q"),
        ],
    )
    letter = read_all(topics.bootstrap_servers, topics.dead_letters)[0]
    headers = header_list(letter)
    broken = [(name, b"yesterday" if name.endswith("time") else value) for name, value in headers]
    publish(topics.bootstrap_servers, topics.dead_letters, [Sent(b"plain", b"x"), Sent(b"x", b"x", broken)])
    assert redrive(topics) == {"not_ours": 4}
    assert not redriven(topics, places)
    die(topics, [Made(place, sent)])
    assert redrive(topics) == {"sent": 1}


def test_runs_of_bounded_memory_do_the_same(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three letters a run: each is sent once, and letters that a run does not reach supersede those that it does."""
    monkeypatch.setattr(redriving, "MOST_CANDIDATES", 3)
    old = publish_and_die(topics, [Sent(b"a", b"old"), *inputs(9)])
    new = publish_and_die(topics, [Sent(b"a", b"new"), *(Sent(None, b"%d" % n) for n in range(9))])
    runs = [redrive(topics) for _ in range(7)]
    assert [3, 16] == [runs[0]["sent"] + runs[0].get("superseded", 0), runs[0]["not_reached"] - 1]
    assert (19, 0) == (sum(run.get("sent", 0) for run in runs), runs[-1].get("not_reached", 0))
    assert redrive(topics) == {}
    sent = {place: each for place, each in old.items() if each.key != b"a"} | new
    assert expected(sent) == redriven(topics, old | new)


def test_a_record_that_names_a_letter_of_another_topic_settles_nothing(topics: Topics) -> None:
    """Nor does one that was made by hand for a place that no letter has."""
    places = publish_and_die(topics, inputs(1))
    forged = [(REDRIVEN_LETTER, value) for value in (b"", b"another-topic:0:0", b"\xff", None)]
    others = publish(topics.bootstrap_servers, topics.input, [Sent(None, b"x", [each]) for each in forged])
    assert redrive(topics) == {"sent": 1}
    assert expected(places) == redriven(topics, places | others)
