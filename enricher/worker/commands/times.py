"""Times on the command line: the forms of ISO 8601; without a zone they are UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from enricher.errors import SettingsError

TIME_FORMS: Final = "a time such as 2026-11-24 or 2026-11-24T06:00Z"


def parse_time(text: str) -> datetime | None:
    """The time in UTC; None if the text is not a time."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def time_option(option: str, text: str | None) -> datetime | None:
    """The value of an option; None if it is not given. Raises SettingsError."""
    if text is None:
        return None
    time = parse_time(text)
    if time is None:
        raise SettingsError(f"{option} {text}: not {TIME_FORMS}")
    return time
