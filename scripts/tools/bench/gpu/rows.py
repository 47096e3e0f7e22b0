"""Shared by the steps of a run: its rows on disk, random checkpoints and their graphs, and what the GPU says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import EMBEDDED, PreparedModel, prepare_variant
from tools.bench.gpu.checkpoints import SHAPES, write_checkpoint
from tools.bench.outcome import ROWS_FILE, cell

GPU_STATE = {"power_w": "power.draw", "sm_mhz": "clocks.sm"}
"""Keys of a row, and what nvidia-smi calls them."""


@dataclass(frozen=True, slots=True)
class GpuBench:
    """A run, or one of its steps. `dry`: tiny shapes on the CPU. `began_s` is monotonic."""

    dry: bool
    out: Path
    scratch: Path
    began_s: float
    step: str = ""

    def add(self, **values: Any) -> None:  # noqa: ANN401  what JSON can hold
        """Append a row with the GPU's power and clock, on disk when this returns, and print it on stderr."""
        row = {"step": self.step, "at_s": round(time.monotonic() - self.began_s, 1), **values}
        if self.dry:
            row["dry"] = True
        else:
            row |= dict(zip(GPU_STATE, ask_gpu(*GPU_STATE.values()), strict=False))
        with (self.out / ROWS_FILE).open("ab") as file:
            file.write(orjson.dumps(row, default=str, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        said = " ".join(f"{key}={cell(value)}" for key, value in row.items() if key not in {"step", "at_s", "dry"})
        print(f"{row['at_s']:7.1f} s  {self.step}: {said}", file=sys.stderr, flush=True)

    @property
    def cache_dir(self) -> Path:
        """Graphs, and what the commands of the worker write."""
        return self.scratch / "cache"

    def checkpoint(self, shape: str) -> Checkpoint:
        """Random weights of a shape, written by the first step that asks."""
        folder = self.scratch / shape
        if not folder.exists():
            # A step that is ended meanwhile leaves no half of a checkpoint behind.
            write_checkpoint(self.scratch / f"{shape}.{os.getpid()}", SHAPES[shape]).rename(folder)
        return Checkpoint.open(folder)

    def graph(self, checkpoint: Checkpoint, variant: Variant) -> PreparedModel:
        """The checkpoint's graph, built by the first step that asks. Needs no GPU."""
        return prepare_variant(checkpoint, variant, "cpu" if self.dry else "cuda", cache_dir=self.cache_dir)

    def shape(self, name: str) -> str:
        """The shape to run instead: a tiny one in a dry run."""
        return "tiny" if self.dry else name

    def seconds(self, on_gpu: float) -> float:
        """How long to measure: a twentieth of a second in a dry run."""
        return 0.05 if self.dry else on_gpu

    def count(self, on_gpu: int) -> int:
        """How many windows: a few in a dry run."""
        return min(8, on_gpu) if self.dry else on_gpu


def model_source() -> str:
    """The worker's model, which may be another than the built-in one: a machine may lack the weights of that."""
    return os.environ.get("ENRICHER_MODEL__SOURCE", EMBEDDED)


def ask_gpu(*names: str) -> list[float | str]:
    """Values of nvidia-smi, numbers without their units; empty where it does not answer."""
    # CUDA_VISIBLE_DEVICES has numbers or UUIDs, and nvidia-smi takes either; __main__ makes both count alike.
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = ["nvidia-smi", "-i", first, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [_number(value.strip()) for value in done.stdout.strip().split(",")]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
