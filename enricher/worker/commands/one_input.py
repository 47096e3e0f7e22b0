"""The option `--input` of commands that are about one input topic, also if the settings name several."""

from __future__ import annotations

from typing import Annotated

import typer

from enricher.errors import SettingsError
from enricher.worker.settings import Settings

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
