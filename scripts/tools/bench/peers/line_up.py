"""Starts the peers that can run here, each with the options to try."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from enricher.app.model import window_cutter
from enricher.inference.checkpoint.folder import Checkpoint
from enricher.inference.device.cores import available_cores
from tools.bench.bench import Bench
from tools.bench.peers.contenders import Peer
from tools.bench.peers.export import exported
from tools.bench.peers.interpreter import torch_python
from tools.bench.peers.orders import Options
from tools.bench.peers.processes import PeerProcess

BY_ARTICLE = "ONNX Runtime fp32, in process, article by article"
AS_POLLED = "ONNX Runtime fp32, in process, in batches as polled"
OVER_HTTP = "ONNX Runtime fp32 behind FastAPI"
PIPELINE_FP32 = "Hugging Face pipeline, PyTorch fp32"
PIPELINE_BF16 = "Hugging Face pipeline, PyTorch bf16"
IN_PROCESS = (BY_ARTICLE, AS_POLLED)

_WINDOWS_PER_RUN = (4, 16)
_REQUESTS_AT_ONCE = 4
_BATCH_SIZES = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class LineUp:
    """The running peers, and why others are missing, by name."""

    peers: list[Peer]
    missing: dict[str, str]


def start(bench: Bench, checkpoint: Checkpoint, closing: ExitStack) -> LineUp:
    """Start the peers; `closing` ends their processes."""
    bench.say("exporting the model for the peers")
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory())) / checkpoint.name
    folder.mkdir()
    exported(checkpoint, folder)
    cutter = window_cutter(bench.settings, bench.model)
    windows = (cutter.max_window_tokens, cutter.overlap_tokens)
    bench.say("starting the peers")
    pipelines, missing = _pipelines(checkpoint.folder, windows, closing)
    return LineUp([*_in_process(folder, windows, closing), _over_http(folder, windows, closing), *pipelines], missing)


def _in_process(folder: Path, windows: tuple[int, int], closing: ExitStack) -> list[Peer]:
    process = closing.enter_context(PeerProcess("tools.bench.peers.onnx_worker", folder, *windows))
    return [
        Peer(BY_ARTICLE, process, [way | {"windows_per_run": None} for way in _threads()]),
        Peer(AS_POLLED, process, [way | {"windows_per_run": size} for way in _threads() for size in _WINDOWS_PER_RUN]),
    ]


def _threads() -> list[Options]:
    """One run at a time on all cores, and one run per core."""
    cores = available_cores()
    ways = [{"callers": cores, "threads": 1}, {"callers": 1, "threads": cores}]
    return ways if cores > 1 else ways[:1]


def _over_http(folder: Path, windows: tuple[int, int], closing: ExitStack) -> Peer:
    """One server for each number of threads per run; the unused one is idle."""
    ways: list[Options] = []
    for threads in sorted({1, available_cores()}):
        server = closing.enter_context(PeerProcess("tools.bench.peers.http_server", folder, *windows, threads))
        url = server.line().decode()
        ways.append({"url": url, "threads": threads, "requests_at_once": _REQUESTS_AT_ONCE})
    return Peer(OVER_HTTP, closing.enter_context(PeerProcess("tools.bench.peers.http_worker", folder)), ways)


def _pipelines(folder: Path, windows: tuple[int, int], closing: ExitStack) -> tuple[list[Peer], dict[str, str]]:
    precisions = {PIPELINE_FP32: "float32", PIPELINE_BF16: "bfloat16"}
    python = torch_python()
    if isinstance(python, str):
        return [], dict.fromkeys(precisions, python)
    module = "tools.bench.peers.huggingface_worker"
    return [
        Peer(
            name,
            closing.enter_context(PeerProcess(module, folder, *windows, precision, python=python.path)),
            [{"batch_size": size} for size in _BATCH_SIZES],
        )
        for name, precision in precisions.items()
    ], {}
