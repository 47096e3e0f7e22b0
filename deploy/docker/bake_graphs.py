# ruff: noqa: INP001  a script
"""Image builds run this: it puts the graphs that a worker may choose beside the embedded model.

The worker chooses where it runs, for example bf16 on a processor with bf16 units. Only variants that may serve are built,
so a reduced one needs a passing report (`enricher model check`).
"""

from __future__ import annotations

import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.worker.inference.graph.graph_files import GRAPHS_FOLDER
from enricher.worker.inference.run.model import WEIGHTS_FILE, open_model, prepare_variant
from enricher.worker.inference.run.selection import unproven, variants_for

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.sessions import Device
    from enricher.worker.inference.graph.variants import Variant


def bake(checkpoint: Checkpoint, device: Device) -> list[Path]:
    """Build one graph for each variant that may serve on `device`, readable by any user; returns their folders."""
    graphs = checkpoint.folder / GRAPHS_FOLDER
    built = [prepare_variant(checkpoint, variant, device, cache_dir=graphs) for variant in eligible(checkpoint, device)]
    folders = [each.onnx_path.parent for each in built]
    for folder in (graphs, *folders):
        folder.chmod(0o755)
    _share_weights(folders)
    return folders


def eligible(checkpoint: Checkpoint, device: Device) -> list[Variant]:
    """Reduced variants with a passing report, and the first other one that runs: no later one is ever chosen.

    The build knows whether OpenVINO is installed; what the processor can compute is known only where the image runs, and
    the build has no GPU.
    """
    variants = variants_for(device)
    reduced = takewhile(lambda variant: variant.reduced, variants)
    runs = [
        variant
        for variant in variants
        if variant.why_unsuited(checkpoint.config) is None and (device == "cuda" or variant.problem() is None)
    ]
    plain = next(variant for variant in runs if not variant.reduced)
    return [*(variant for variant in reduced if unproven(checkpoint, device, variant, None) is None), plain]


def _share_weights(folders: list[Path]) -> None:
    """Hard-link equal weights of several variants, so that the image's layer holds them once."""
    kept: dict[bytes, Path] = {}
    for path in (folder / WEIGHTS_FILE for folder in folders):
        if path.is_file() and (same := kept.setdefault(path.read_bytes(), path)) != path:
            path.unlink()
            os.link(same, path)


def main(device: Device) -> None:
    """Bake, and print the sizes."""
    for folder in bake(open_model(None), device):
        size_mb = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        sys.stdout.write(f"{folder.name}: {size_mb:.0f} MB\n")


if __name__ == "__main__":
    main("cuda" if sys.argv[1] == "cuda" else "cpu")
