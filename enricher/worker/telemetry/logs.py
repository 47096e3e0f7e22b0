"""The log on standard error: one line per event, as JSON or text, with trace ids, and a limit on repeated lines."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import orjson
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

from enricher.worker.runtime.repeats import Repeats

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_PERIOD_S = 60.0
_TRACEBACK = "  | "
"""The prefix of each line of a traceback, so that text in an exception cannot look like a line of the log."""
CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters from outside that must not reach a terminal: control characters of ASCII and Latin-1, which it obeys, and marks
that break lines or change the writing direction."""
_REPEATS_PER_MINUTE = 20
"""The most lines of one kind: a broken feed of 1,000 dead letters a second would fill the disk. Further lines are
counted."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = {code: _NAMED.get(chr(code)) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}") for code in CONTROLS}
_ESCAPES_BUT_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) != "\n"}
_ESCAPES_OF_JSON = {code: f"\\u{code:04x}" for code in CONTROLS if code >= 0x7F}
"""Control characters that orjson does not escape. In JSON they occur only inside strings."""


def set_up(form: Literal["auto", "json", "text"], *, process: int | None = None) -> None:
    """Set the format of all handlers of the root logger, and limit repeated lines. `auto`: text on a terminal, else JSON.

    `process`: the number of this process among several, which share standard error; every line has it.
    """
    set_form(form, process=process)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatsFilter(_REPEATS_PER_MINUTE))


def set_form(form: Literal["auto", "json", "text"], *, process: int | None = None) -> None:
    """Set the format only. Used before the other settings are known."""
    as_json = resolve_form(form) == "json"
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines(process) if as_json else TextLines(process))


def is_json() -> bool:
    """Whether this process logs JSON lines, so that nothing else may be written to standard error."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def resolve_form(form: Literal["auto", "json", "text"]) -> Literal["json", "text"]:
    """The format, with `auto` resolved for this process."""
    if form != "auto":
        return form
    return "text" if sys.stderr.isatty() else "json"


def escape_controls(text: str, *, lines: bool = False) -> str:
    """The text with control characters escaped; with `lines`, except for line ends.

    Names of topics and groups come from outside: without escapes they could forge log lines or control the terminal.
    """
    return text.translate(_ESCAPES_BUT_LINES if lines else _ESCAPES)


class TextLines(logging.Formatter):
    """A text line: time, level, logger, message. A traceback follows, each line with a bar as prefix.

    With `process`, each line begins with that number in brackets.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__(_TEXT)
        self._prefix = "" if process is None else f"[{process}] "

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its line end."""
        record.message = escape_controls(record.getMessage())
        record.asctime = self.formatTime(record)
        line = f"{self._prefix}{self.formatMessage(record)}"
        if not record.exc_info:
            return line
        trace = escape_controls(self.formatException(record.exc_info), lines=True)
        return "\n".join([line, *(f"{self._prefix}{_TRACEBACK}{each}" for each in trace.split("\n"))])


class JsonLines(logging.Formatter):
    """One object per line: `time`, `level`, `logger`, `message`; if present also `process`, trace ids and `error`."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its line end."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _utf8(record.getMessage()),
            **self._process,
        }
        context = get_current_span().get_span_context()
        if context.is_valid:
            line |= {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}
        if record.exc_info:
            line["error"] = _utf8(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode().translate(_ESCAPES_OF_JSON)


def _utf8(text: str) -> str:
    """Escape lone surrogates, which file names that are not UTF-8 contain and JSON cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


class RepeatsFilter(logging.Filter):
    """Lets at most `per_minute` lines of a kind (logger, level, template) pass per minute, and counts the others.

    The first line of that kind after the minute says how many were left out.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeats = Repeats(period_s=_PERIOD_S, lines=per_minute, clock=clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this line. There are few kinds, because templates are part of the program."""
        kind = (record.name, record.levelno, str(record.msg))
        if not self._repeats.is_new(kind):
            return False
        if left_out := self._repeats.left_out(kind):
            record.msg = f"{record.getMessage()} ({left_out} more lines like this were left out)"
            record.args = ()
        return True
