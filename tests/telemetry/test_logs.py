"""The log: a JSON object per line, with trace ids inside a span, and repeated lines limited."""

from __future__ import annotations

import logging
import sys

import orjson
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id, use_span

from enricher.worker.telemetry.logs import JsonLines, RepeatsFilter, TextLines


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    """A log record."""
    return logging.LogRecord("enricher.worker.loop.loop", level, __file__, 1, message, arguments, None)


def raise_error(message: str) -> None:
    """Raise, for the traceback."""
    raise ValueError(message)


def test_a_line_is_an_object() -> None:
    """A message with line ends is still one line."""
    text = JsonLines().format(record("partitions %s:\n%d left", "lost", 3))
    assert "\n" not in text
    line = orjson.loads(text)
    assert {
        "level": "warning",
        "logger": "enricher.worker.loop.loop",
        "message": "partitions lost:\n3 left",
    }.items() <= line.items()
    assert set(line) == {"time", "level", "logger", "message"}


def test_a_name_that_is_not_utf8_does_not_cost_the_line() -> None:
    """Python represents such a name with lone surrogates, which JSON does not allow."""
    line = orjson.loads(JsonLines().format(record("cannot write %s", "/cache/\udcff")))
    assert r"cannot write /cache/\udcff" == line["message"]


def test_a_line_of_one_of_several_processes_says_which() -> None:
    """It is the number that the parent gave the process; a line of text begins with it, also those of a traceback."""
    assert 3 == orjson.loads(JsonLines(3).format(record("ready")))["process"]
    assert TextLines(3).format(record("ready")).startswith("[3] ")
    try:
        raise_error("bad")
    except ValueError:
        bug = logging.LogRecord("x", 40, __file__, 1, "bug", (), sys.exc_info())
    assert all(line.startswith("[3] ") for line in TextLines(3).format(bug).splitlines())


def test_a_line_within_a_span_has_its_ids() -> None:
    """Logs can then be found from a trace, and traces from a log."""
    with use_span(TracerProvider().get_tracer("test").start_span("commit")) as span:
        line = orjson.loads(JsonLines().format(record("slow")))
    assert format_trace_id(span.get_span_context().trace_id) == line["trace_id"]
    assert 16 == len(line["span_id"])


def test_an_error_is_in_its_line() -> None:
    """The line has the type of the error and where it was raised."""
    try:
        int("seven")
    except ValueError:
        line = JsonLines().format(logging.LogRecord("x", 40, __file__, 1, "bug", (), sys.exc_info()))
    assert "ValueError: invalid literal" in orjson.loads(line)["error"]


@pytest.mark.parametrize("control", ["\n", "\x1b[2K", "\x9b2J", "\u2028", "\u202e", "\x00"])
@pytest.mark.parametrize("form", [TextLines(), JsonLines()], ids=["text", "json"])
def test_no_name_forges_a_line_or_moves_the_cursor(form: logging.Formatter, control: str) -> None:
    """Topic names come from outside: control characters in them are escaped."""
    forged = f"articles{control}2026-01-01 00:00:00,000 INFO    enricher: all is well"
    line = form.format(record("group %s: gone", forged))
    assert control[0] not in line
    assert len(line.splitlines()) == 1
    assert "articles\\" in line


def test_a_traceback_in_text_stays_one_and_forges_nothing() -> None:
    """Each line of the traceback is prefixed with a bar, and its control characters are escaped."""
    try:
        raise_error("bad\n2026-01-01 00:00:00,000 INFO    enricher: all is well\x1b[2J")
    except ValueError:
        text = TextLines().format(logging.LogRecord("x", 40, __file__, 1, "bug", (), sys.exc_info()))
    first, *trace = text.splitlines()
    assert first.endswith("x: bug")
    assert "  | Traceback (most recent call last):" == trace[0]
    assert all(line.startswith("  | ") for line in trace)
    assert "  | ValueError: bad" in trace
    assert r"  | 2026-01-01 00:00:00,000 INFO    enricher: all is well\x1b[2J" == trace[-1]


def test_repeats_are_left_out_and_counted() -> None:
    """The limit is per template and minute; the first line of the next minute says how many were dropped."""
    now_s = [0.0]
    repeats = RepeatsFilter(2, clock=lambda: now_s[0])
    assert [True, True, False, False, False] == [repeats.filter(record("lag of %d", n)) for n in range(5)]
    assert repeats.filter(record("another wording"))
    assert repeats.filter(record("lag of %d", 6, level=logging.ERROR)), "another level is another kind"
    now_s[0] = 61.0
    late = record("lag of %d", 7)
    assert repeats.filter(late)
    assert "lag of 7 (3 more lines like this were left out)" == late.getMessage()
