"""Time and peak memory of building a large checkpoint's graph, measured in a child process.

Run as a module it prepares one variant: `python -m tools.bench.gpu.preparing FOLDER VARIANT CACHE`, and prints JSON.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

STATUS = Path("/proc/self/status")
VARIANTS = ("packed-fp16", "padded-fp32")


@dataclass(frozen=True, slots=True)
class Preparation:
    """One variant of one checkpoint. The peak includes mapped pages of the checkpoint."""

    variant: str
    seconds: float
    peak_gib: float
    graph_gib: float


def prepare_apart(folder: Path, variant: str, cache: Path) -> Preparation:
    """Prepare in a child process. Blocks until it ends."""
    command = [sys.executable, "-m", "tools.bench.gpu.preparing", str(folder), variant, str(cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Preparation(**orjson.loads(done.stdout))


def _prepare(folder: str, name: str, cache: str) -> Preparation:
    began_s = time.perf_counter()
    from enricher.inference.graph.packed_cuda import PackedFloat16  # noqa: PLC0415  as above
    from enricher.inference.graph.padded import PaddedFloat32  # noqa: PLC0415  as above
    from enricher.inference.run.model import open_model, prepare_variant  # noqa: PLC0415  the time of imports counts

    variant = {each.name: each for each in (PackedFloat16(), PaddedFloat32())}[name]
    # Like `enricher model prepare`, on any machine; opening the model digests every file.
    path = prepare_variant(open_model(folder), variant, "cpu", cache_dir=Path(cache)).onnx_path
    size = sum(each.stat().st_size for each in path.parent.iterdir())
    return Preparation(name, time.perf_counter() - began_s, _peak_bytes() / 2**30, size / 2**30)


def _peak_bytes() -> int:
    """The peak of this process; getrusage() would include the parent's memory at the fork."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asdict(_prepare(*sys.argv[1:]))))
