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

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_PERIOD_S = 60.0
_TRACEBACK = "  | "
"""Before each line of a traceback: what stands in an exception cannot pass for a line of the log."""
# Controls of ASCII and of Latin-1, and the marks that break lines or turn the direction of what follows.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = {code: _NAMED.get(chr(code)) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}") for code in _CONTROLS}
_ESCAPES_BUT_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) != "\n"}
_ESCAPES_OF_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS if code >= 0x7F}
"""Those that orjson leaves as they are; they stand in strings only."""


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
        handler.setFormatter(JsonLines(process) if as_json else TextLines())


def is_json() -> bool:
    """Whether the log of this process is lines of JSON, so that nothing else may be written among them."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def resolved(form: Literal["auto", "json", "text"]) -> Literal["json", "text"]:
    """What `auto` means for this process."""
    if form != "auto":
        return form
    return "text" if sys.stderr.isatty() else "json"


def escaped(text: str, *, lines: bool = False) -> str:
    """`text` without what a terminal obeys or what ends a line: control characters become escapes.

    Names of topics and groups come from outside, and would forge lines or move the cursor. `lines`: line ends are kept.
    """
    return text.translate(_ESCAPES_BUT_LINES if lines else _ESCAPES)


class TextLines(logging.Formatter):
    """A line for people: time, level, logger, message. A traceback stands below it, each line behind a bar."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        record.message = escaped(record.getMessage())
        record.asctime = self.formatTime(record)
        line = self.formatMessage(record)
        if not record.exc_info:
            return line
        trace = escaped(self.formatException(record.exc_info), lines=True)
        return "\n".join([line, *(f"{_TRACEBACK}{each}" for each in trace.split("\n"))])


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
        return orjson.dumps(line, default=str).decode().translate(_ESCAPES_OF_JSON)


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
