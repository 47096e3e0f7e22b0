"""The file with the measurements of `enricher model tune`, and whether it is valid here.

A worker uses the recommendation as defaults if it was made for the same weights, variant, windows and kind of machine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.worker.inference.device.cores import available_cores
from enricher.worker.inference.device.processor import UNKNOWN_GPU, processor_name

if TYPE_CHECKING:
    from enricher.worker.inference.run.model import PreparedModel

SCHEMA_VERSION = 1

_log = logging.getLogger(__name__)


class TuningRow(BaseModel):
    """One measured cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: int
    length_tokens: int
    batch_tokens: int
    windows: int
    tokens_per_s: float
    batch_ms: float


class FreshnessRow(BaseModel):
    """One simulation with the measured costs of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    load: float = Field(description="The rate of windows, as a share of the rate with full batches.")
    early_overhead: float = Field(description="The setting; 0: no early batches.")
    p50_ms: float = Field(description="From a window's arrival until its labels are there.")
    p99_ms: float
    thread_ms: float = Field(description="Thread time per window.")


class Tuning(BaseModel):
    """The file `tuning-<device>-<variant>.json`: what was measured, on which machine, and what is recommended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    model_name: str
    model_digest: str
    variant: str
    device: str
    provider: str
    processor: str
    cores: int = Field(description="Cores that the process could use.")
    load_before: float | None = Field(
        description="One-minute load average before the measurement: other work on the machine."
    )
    onnxruntime: str
    created_at: str
    window_tokens: int = Field(description="Length of the windows that the recommendation is for.")
    rows: tuple[TuningRow, ...]
    concurrency: int = Field(description="Recommended.")
    max_batch_tokens: int = Field(description="Recommended.")
    run_overhead_tokens: int = Field(description="Recommended: the fixed cost of a run, in tokens.")
    bucket_edges: tuple[int, ...] = Field(description="Recommended: longest window of each length bucket.")
    early_overhead: float | None = Field(
        None, description="Recommended; 0: early batches do not pay here. None in files of older versions."
    )
    freshness: tuple[FreshnessRow, ...] = Field((), description="What that recommendation follows from.")

    @property
    def file_name(self) -> str:
        """One file per device and variant: `tuning-cpu-packed-fp32.json`."""
        return _file_name(self.device, self.variant)


def write_tuning(folder: Path, tuning: Tuning) -> Path:
    """Write the file. Raises OSError if the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / tuning.file_name
    path.write_text(tuning.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path


def tuning_for(model: PreparedModel, window_tokens: int, folders: Sequence[Path]) -> Tuning | None:
    """The first valid tuning for `model` on this machine with windows of this length; None if there is none.

    A file that is not valid here or cannot be read is logged and skipped, because it is only advice.
    """
    for folder in folders:
        path = folder / _file_name(model.device, model.variant.name)
        if not path.is_file():
            continue
        try:
            tuning = Tuning.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            _log.warning("%s cannot be read, so defaults are used (%s)", path, type(error).__name__)
            continue
        if differs := _differences(tuning, model, window_tokens):
            _log.info("%s is not valid here: different %s", path, ", ".join(differs))
            continue
        _log.info("concurrency and batches as tuned on %s (%s)", tuning.created_at, path)
        return tuning
    return None


def _differences(tuning: Tuning, model: PreparedModel, window_tokens: int) -> list[str]:
    """The differences between the tuning and this process, in words."""
    here = {
        "model": model.checkpoint.digest,
        "processor": processor_name(model.device, model.device_id),
        "number of cores": available_cores(),
        "window length": window_tokens,
    }
    tuned = {
        "model": tuning.model_digest,
        "processor": tuning.processor,
        "number of cores": tuning.cores,
        "window length": tuning.window_tokens,
    }
    # GPUs whose names are unknown may be different ones.
    return [name for name, value in here.items() if tuned[name] != value or value == UNKNOWN_GPU]


def _file_name(device: str, variant: str) -> str:
    return f"tuning-{device}-{variant}.json"
