"""Options about an input topic: its name, and times of its records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from enricher.errors import SettingsError
from enricher.worker.settings import Settings

TIME_FORMS: Final = "a time such as 2026-11-24 or 2026-11-24T06:00Z"
InputOption = Annotated[
    str | None, typer.Option("--input", metavar="TOPIC", help="Which input topic, if the settings name several.")
]


def with_one_input(settings: Settings, topic: str | None) -> Settings:
    """The settings with this input topic alone; None: with the only one. Raises SettingsError if it is not one of them."""
    inputs = settings.kafka.inputs
    if topic is None and len(inputs) > 1:
        raise SettingsError(f"kafka.input_topics names several topics: choose one with --input, of {', '.join(inputs)}")
    chosen = topic or inputs[0]
    if chosen not in inputs:
        raise SettingsError(f"--input {chosen} is no input topic of the settings: {', '.join(inputs)}")
    kafka = settings.kafka.model_copy(update={"input_topic": chosen, "input_topics": ()})
    return settings.model_copy(update={"kafka": kafka})


def time_option(option: str, text: str | None) -> datetime | None:
    """The value of an option; None if it is not given. Raises SettingsError."""
    if text is None:
        return None
    time = parse_time(text)
    if time is None:
        raise SettingsError(f"{option} {text}: not {TIME_FORMS}")
    return time


def parse_time(text: str) -> datetime | None:
    """The time in UTC; None if the text is not a time."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
