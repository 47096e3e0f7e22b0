"""The log on standard error: a line per event, as JSON or for people, with trace ids, and without floods of one kind."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import orjson
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_PERIOD_S = 60.0


def set_up(form: Literal["auto", "json", "text"], *, repeats_per_minute: int, process: int | None = None) -> None:
    """Give all handlers of the root logger this form. `auto` is text on a terminal, else JSON.

    `process`: the number of this one among several, for lines of JSON; before lines of text their parent writes it.
    """
    set_form(form, process=process)
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeats(repeats_per_minute))


def set_form(form: Literal["auto", "json", "text"], *, process: int | None = None) -> None:
    """The form alone: for what is told before the other settings are known."""
    as_json = resolved(form) == "json"
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines(process) if as_json else logging.Formatter(TEXT))


def is_json() -> bool:
    """Whether the log of this process is lines of JSON, so that nothing else may be written among them."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def resolved(form: Literal["auto", "json", "text"]) -> Literal["json", "text"]:
    """What `auto` means for this process."""
    if form != "auto":
        return form
    return "text" if sys.stderr.isatty() else "json"


class JsonLines(logging.Formatter):
    """One object per line: `time`, `level`, `logger`, `message`, and where there are such `process`, trace ids, `error`."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._whose = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _utf8(record.getMessage()),
            **self._whose,
        }
        context = get_current_span().get_span_context()
        if context.is_valid:
            line |= {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}
        if record.exc_info:
            line["error"] = _utf8(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


def _utf8(text: str) -> str:
    """Without the lone surrogates that the name of a file has which is not UTF-8: JSON has none."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(slots=True)
class _Kind:
    """Lines of one kind in the running minute."""

    since_s: float
    count: int = 0


class Repeats(logging.Filter):
    """Lets so many lines of a kind (logger, level, wording) through in a minute, and counts the others.

    The first line after that minute says how many there were.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written. Wordings are templates of the program, so there are few."""
        key, now_s = (record.name, record.levelno, str(record.msg)), self._clock()
        kind = self._kinds.setdefault(key, _Kind(now_s))
        if now_s - kind.since_s >= _PERIOD_S:
            left_out = kind.count - self._per_minute
            self._kinds[key] = kind = _Kind(now_s)
            if left_out > 0:
                record.msg = f"{record.getMessage()} ({left_out} more lines like this were left out)"
                record.args = ()
        kind.count += 1
        return kind.count <= self._per_minute
