"""Settings for operators: the health port and the log."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from enricher.worker.settings.group import Group


class HealthSettings(Group):
    """The port for probes, metrics and the status page."""

    enabled: bool = Field(
        default=True, description="Serve /livez, /readyz, /startupz, /metrics and the status page over HTTP."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on; in a pod `0.0.0.0`, because the kubelet and Prometheus connect from outside.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Port to listen on. Default: 8080, or any free port if 8080 is taken; a port that is set must be "
        "free.",
    )
    labels_baseline: Path | None = Field(
        None,
        description="File with the share that each label should have, written by `enricher labels --out`. The worker "
        "exports it beside the labels that it finds, and an alert compares them. Default: none, and no alert.",
    )


class LogSettings(Group):
    """The format of the log on standard error."""

    format: Literal["auto", "json", "text"] = Field(
        "auto", description="`json`: one object per line; `text`: for people; `auto`: text on a terminal, else JSON."
    )
    repeats_per_minute: int = Field(
        20,
        ge=1,
        description="Log lines of one kind per minute; further ones are only counted, and the count is logged.",
    )
