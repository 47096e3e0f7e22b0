"""The settings of those who look at a worker: where it answers, how it writes its log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enricher.settings.group import Group


class HealthSettings(Group):
    """Where probes, metrics and the status page are served."""

    enabled: bool = Field(
        default=True, description="Serve /livez, /readyz, /startupz, /metrics and the status page over HTTP."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on; `0.0.0.0` in a pod, where the kubelet and Prometheus come from outside.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Port to listen on. Default: 8080, or any free one where that is taken; a number given must be free.",
    )


class LogSettings(Group):
    """How the log is written, to standard error."""

    format: Literal["auto", "json", "text"] = Field(
        "auto", description="`json`: an object per line; `text`: for people; `auto`: text on a terminal, else JSON."
    )
    repeats_per_minute: int = Field(
        20, ge=1, description="Lines of one kind in a minute; those beyond are counted, and the number is told."
    )
