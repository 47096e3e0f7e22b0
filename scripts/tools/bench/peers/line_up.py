"""Starts the peers that can run here, each with the options to try."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from enricher.worker.build.loaded_model import window_cutter
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.cores import available_cores
from enricher.worker.inference.device.session import Device
from enricher.worker.runtime.devices import Precision
from tools.bench.bench import Bench
from tools.bench.peers.contenders import Peer
from tools.bench.peers.djl import NotCompiled, djl_launcher
from tools.bench.peers.export import export_peer
from tools.bench.peers.interpreter import torch_python
from tools.bench.peers.orders import Options
from tools.bench.peers.processes import PYTHON, PeerProcess
from tools.kafka.errors import ClusterError

BY_ARTICLE = "ONNX Runtime fp32, in process, article by article"
AS_POLLED = "ONNX Runtime fp32, in process, in batches as polled"
OVER_HTTP = "ONNX Runtime fp32 behind FastAPI"
ON_THE_JVM = "DJL on the JVM, ONNX Runtime fp32"
PIPELINE = "Hugging Face pipeline, PyTorch {}"
SCRIPTED = "TorchScript, traced and frozen, {}"
COMPILED = "torch.compile, {}"
IN_PROCESS = (BY_ARTICLE, AS_POLLED)

DTYPES: dict[Device, dict[Precision, str]] = {
    "cpu": {"fp32": "float32", "bf16": "bfloat16"},
    "cuda": {"fp32": "float32", "fp16": "float16"},
}
"""Precisions that PyTorch's users choose on a device, by our names."""
_WINDOWS_PER_RUN: dict[Device, tuple[int, ...]] = {"cpu": (4, 16), "cuda": (32, 128)}
_BATCH_SIZES: dict[Device, tuple[int, ...]] = {"cpu": (1, 8, 32), "cuda": (32, 128)}
_REQUESTS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class LineUp:
    """The running peers, and why others are missing, by name."""

    peers: list[Peer]
    missing: dict[str, str]

    def leave_out(self, peer: Peer, why: str) -> None:
        """Continue without a peer that cannot work here. `why` is of PeerFailed: the command, and the end of its output."""
        self.peers.remove(peer)
        self.missing[peer.name] = (
            f"not measured: {'; '.join(filter(None, map(str.strip, why.splitlines()[1:]))) or why}"
        )


def start(bench: Bench, checkpoint: Checkpoint, closing: ExitStack) -> LineUp:
    """Start the peers; `closing` ends their processes."""
    bench.say("exporting the model for the peers")
    scratch = Path(
        closing.enter_context(tempfile.TemporaryDirectory(prefix="enricher-peers-", ignore_cleanup_errors=True))
    )
    folder = scratch / checkpoint.name
    folder.mkdir()
    export_peer(checkpoint, folder)
    cutter, prepared = window_cutter(bench.settings, bench.model), bench.model.prepared
    device = "cpu" if prepared.device == "cpu" else f"cuda:{prepared.device_id}"
    starter = Starter(scratch, closing, (cutter.max_window_tokens, cutter.overlap_tokens, device), prepared.device)
    bench.say("starting the peers")
    starter.in_process(folder)
    starter.over_http(folder)
    starter.on_the_jvm(folder)
    starter.on_pytorch(checkpoint.folder)
    return LineUp(starter.peers, starter.missing)


@dataclass
class Starter:
    """Starts peers one kind after the other, and collects them and what is missing."""

    scratch: Path
    closing: ExitStack
    place: tuple[object, ...]
    """Arguments of every worker: tokens of a window, tokens that windows share, device."""
    device: Device
    peers: list[Peer] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def in_process(self, folder: Path) -> None:
        """Two peers on one process, of which one runs at a time."""
        process = self._run("tools.bench.peers.onnx_worker", folder, *self.place)
        self.peers.append(Peer(BY_ARTICLE, process, self._ways([None])))
        self.peers.append(Peer(AS_POLLED, process, self._ways(_WINDOWS_PER_RUN[self.device])))

    def over_http(self, folder: Path) -> None:
        """One server for each number of threads per run; the unused one is idle."""
        ways: list[Options] = []
        for threads in sorted({1, available_cores()}):
            server = self._run("tools.bench.peers.http_server", folder, *self.place, threads)
            ways.append({"url": server.hear()["url"], "threads": threads, "requests_at_once": _REQUESTS_AT_ONCE})
        self.peers.append(Peer(OVER_HTTP, self._run("tools.bench.peers.http_worker", folder), ways))

    def on_the_jvm(self, folder: Path) -> None:
        """DJL, unless its jars cannot be fetched."""
        try:
            launcher = djl_launcher(self.device, self.scratch)
        except (ClusterError, NotCompiled) as error:
            self.missing[ON_THE_JVM] = f"not measured: {error}"
            return
        process = self._run("DjlWorker", folder, *self.place, launcher=launcher)
        self.peers.append(Peer(ON_THE_JVM, process, self._ways([None, *_WINDOWS_PER_RUN[self.device]])))

    def on_pytorch(self, folder: Path) -> None:
        """The pipeline, TorchScript and torch.compile in each precision, unless PyTorch is missing."""
        python = torch_python()
        for precision, dtype in DTYPES[self.device].items():
            names = [name.format(precision) for name in (PIPELINE, SCRIPTED, COMPILED)]
            if isinstance(python, str):
                self.missing |= dict.fromkeys(names, python)
                continue
            launcher, arguments = (python.path, "-m"), (folder, *self.place, dtype)
            worker, sizes = "tools.bench.peers.torch_worker", [None, *_WINDOWS_PER_RUN[self.device]]
            pipeline = self._run("tools.bench.peers.huggingface_worker", *arguments, launcher=launcher)
            ways: list[Options] = [{"batch_size": size} for size in _BATCH_SIZES[self.device]]
            self.peers.append(Peer(names[0], pipeline, ways))
            for name, kind in zip(names[1:], ("scripted", "compiled"), strict=True):
                process = self._run(worker, *arguments, kind, self.scratch, launcher=launcher)
                self.peers.append(Peer(name, process, self._ways(sizes)))

    def _ways(self, sizes: Sequence[int | None]) -> list[Options]:
        return [threads | {"windows_per_run": size} for threads in _threads(self.device) for size in sizes]

    def _run(self, program: str, *arguments: object, launcher: Sequence[str] = PYTHON) -> PeerProcess:
        return self.closing.enter_context(PeerProcess(program, *arguments, launcher=launcher))


def _threads(device: Device) -> list[Options]:
    """One run at a time on all cores, and one run per core; on a GPU one run at a time, and two."""
    if device != "cpu":
        return [{"callers": callers, "threads": 1} for callers in (1, 2)]
    cores = available_cores()
    ways = [{"callers": cores, "threads": 1}, {"callers": 1, "threads": cores}]
    return ways if cores > 1 else ways[:1]
