"""Which gate reports keep a faster precision from a pass: those that are missing, and those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.worker.inference.graph.catalogue import variants_for
from enricher.worker.inference.run.selection import (
    check_command,
    missed_target,
    newest_report,
    problem_of,
    unproven,
    why_not_reduced,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Device
    from enricher.worker.inference.graph.variants import Variant


def missing_for(checkpoints: Sequence[Checkpoint], device: Device, cache_dir: Path | None) -> list[str]:
    """The commands for the reports that the fastest variant of these heads together lacks, unless another report failed."""
    for variant in _reduced_for(checkpoints, device):
        lacking = [each for each in checkpoints if newest_report(each, variant, cache_dir) is None]
        unfit = [each for each in checkpoints if unproven(each, device, variant, cache_dir)]
        if lacking and len(unfit) == len(lacking):
            return [check_command(each, device, variant) for each in lacking]
    return []


def failing(checkpoints: Sequence[Checkpoint], device: Device, cache_dir: Path | None) -> list[bool]:
    """Which heads keep the fastest variant from the others, whose reports pass; all False if there is no such variant."""
    for variant in _reduced_for(checkpoints, device):
        unfit = [unproven(each, device, variant, cache_dir) is not None for each in checkpoints]
        if any(unfit) and not all(unfit):
            return unfit
    return [False for _ in checkpoints]


def _reduced_for(checkpoints: Sequence[Checkpoint], device: Device) -> list[Variant]:
    """The reduced variants that run these heads together on this machine, fastest first."""
    return [
        variant
        for variant in variants_for(device)
        if variant.reduced
        and why_not_reduced(checkpoints, variant) is None
        and all(problem_of(each, variant) is None and missed_target(each, variant) is None for each in checkpoints)
    ]
