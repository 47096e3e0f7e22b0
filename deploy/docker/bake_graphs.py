# ruff: noqa: INP001  it is run, not imported
"""Image builds run this: the graphs that a worker can come to choose, put beside the embedded model.

Which one it takes, it decides where it runs: bf16 where the processor has units for it, and so on. Only variants that may
serve are built, so a reduced one needs a report that passed (`enricher model check`).
"""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.inference.checkpoint.gate_report import read_reports
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.graph.cache import GRAPHS_FOLDER
from enricher.inference.graph.catalogue import variants_for
from enricher.inference.run.model import WEIGHTS_FILE, open_model, prepare_variant

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.device.session import Device
    from enricher.inference.graph.variants import Variant


def bake(checkpoint: Checkpoint, device: Device) -> list[Path]:
    """The folders of the graphs, one for each variant that may serve on `device`, readable by any user."""
    graphs = checkpoint.folder / GRAPHS_FOLDER
    built = [
        prepare_variant(checkpoint, variant, device, cache_dir=graphs) for variant in _eligible(checkpoint, device)
    ]
    folders = [each.onnx_path.parent for each in built]
    for folder in (graphs, *folders):
        folder.chmod(0o755)
    _share_weights(folders)
    return folders


def _eligible(checkpoint: Checkpoint, device: Device) -> list[Variant]:
    """Reduced variants with a report that passed, and the first that needs none and runs: nothing behind it is ever chosen.

    Whether OpenVINO is there the build knows; which units the processor has is known only where the image runs.
    """
    variants = variants_for(device)
    reduced = takewhile(lambda variant: variant.reduced, variants)
    plain = next(variant for variant in variants if not variant.reduced and variant.problem() is None)
    return [*(variant for variant in reduced if _proven(checkpoint, variant)), plain]


def _proven(checkpoint: Checkpoint, variant: Variant) -> bool:
    reports = [
        report
        for report in read_reports([checkpoint.folder], variant.name)
        if report.counts_for(checkpoint.digest, variant.name, BUILDER_VERSION)
    ]
    return bool(reports) and max(reports, key=lambda report: report.bound_to.created_at).passed


def _share_weights(folders: list[Path]) -> None:
    """Variants that compute differently over the same weights: one file with several names, which a layer holds once."""
    kept: dict[bytes, Path] = {}
    for path in (folder / WEIGHTS_FILE for folder in folders):
        if path.is_file() and (same := kept.setdefault(path.read_bytes(), path)) != path:
            path.unlink()
            os.link(same, path)


def main(device: Device) -> None:
    """Bake, and say what."""
    for folder in bake(open_model(None), device):
        size_mb = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        sys.stdout.write(f"{folder.name}: {size_mb:.0f} MB\n")


if __name__ == "__main__":
    main("cuda" if sys.argv[1] == "cuda" else "cpu")
