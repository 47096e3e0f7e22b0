"""Which device is chosen, what its driver says, how ONNX Runtime gets it, and how a missing one is refused."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnxruntime as ort
import pytest
from inference.conftest import REFERENCE
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_
from support.gpu_driver import FakeDriver
from typer.testing import CliRunner

from enricher.cli import app
from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import driver, hardware
from enricher.worker.inference.device.driver import Gpu
from enricher.worker.inference.device.hardware import UNKNOWN_GPU, cuda_problem, processor_name, resolve_device
from enricher.worker.inference.device.sessions import arithmetic_of, open_session
from enricher.worker.inference.graph import external
from enricher.worker.inference.run.model import prepare
from tools.bench.plain_export import export

REAL_SESSION = ort.InferenceSession
_CPU_FALLBACK = "session.disable_cpu_ep_fallback"


class Opened:
    """Stands for ONNX Runtime's sessions: records how they are opened, and reports CUDA if it was asked for."""

    providers: list[tuple[str, dict[str, str]]]

    def __init__(self) -> None:
        self.providers = []
        self.entries: list[dict[str, str]] = []
        self.disabled: list[list[str]] = []
        self.before_opening: Callable[[], object] = lambda: None
        self.seen: list[object] = []
        self.severities: list[int] = []
        self.broken: Exception | None = None
        self.cannot_run: Exception | None = None

    def __call__(
        self,
        _model: object,
        options: ort.SessionOptions,
        providers: list[tuple[str, dict[str, str]]],
        *,
        enable_fallback: bool,
        disabled_optimizers: list[str],
    ) -> Opened:
        """Open, or raise; with its fallback ONNX Runtime would not raise."""
        self.seen.append(self.before_opening())
        with contextlib.suppress(RuntimeError):  # it raises for an entry that is not there
            self.entries.append({})
            self.entries[-1][_CPU_FALLBACK] = options.get_session_config_entry(_CPU_FALLBACK)
        self.providers += providers
        self.disabled.append(disabled_optimizers)
        if self.broken is not None and not enable_fallback:
            raise self.broken
        return self

    def get_providers(self) -> list[str]:
        """The provider that runs it."""
        return [self.providers[-1][0] if self.broken is None else "CPUExecutionProvider"]

    def run(self, _outputs: Sequence[str], _feeds: object) -> list[object]:
        """Return nothing, or raise `cannot_run`."""
        if self.cannot_run is not None:
            raise self.cannot_run
        return []

    @property
    def device_ids(self) -> list[str]:
        """The devices of all sessions, in order."""
        return [options["device_id"] for _, options in self.providers]


@pytest.fixture
def gpu_driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver that shows two GPUs."""
    return FakeDriver().install(monkeypatch)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, gpu_driver: FakeDriver) -> Opened:
    """A machine with two GPUs on which CUDA seems to work."""
    del gpu_driver
    opened = Opened()
    monkeypatch.setattr(hardware, "_working", set())
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", opened)
    monkeypatch.setattr(hardware, "_preload_cuda_libraries", lambda: "")
    monkeypatch.setattr(ort, "set_default_logger_severity", opened.severities.append)
    return opened


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an NVIDIA driver."""
    monkeypatch.setattr(hardware, "_working", set())
    monkeypatch.setattr(driver, "_library", lambda: None)


@pytest.mark.parametrize(("runtime", "device_id"), [("cuda", "0"), ("cuda", "1"), ("cpu", None)])
def test_a_session_is_opened_on_the_gpu_that_was_asked_for(
    two_gpus: Opened, runtime: Literal["cpu", "cuda"], device_id: str | None
) -> None:
    """`device_id` is an option of the CUDA provider, beside the others; the CPU's knows no such thing."""
    open_session(b"", runtime, threads_per_run=1, device_id=int(device_id or 0))
    _, options = two_gpus.providers[-1]
    assert options.get("device_id") == device_id
    assert ("use_tf32" in options) == (runtime == "cuda")


@pytest.mark.parametrize(("asked", "index"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_cuda_is_tried_on_the_gpu_that_was_asked_for_and_on_no_other(
    two_gpus: Opened, asked: str, index: int, tmp_path: Path
) -> None:
    """A session on another GPU would take its memory; asking again opens none. Variants are those of `cuda`, whichever."""
    model = prepare(REFERENCE / "bert", device=asked, precision="fp32", cache_dir=tmp_path)
    assert ("cuda", index, "cuda") == (model.device, model.device_id, model.variant.runtime)
    assert cuda_problem() is None
    assert resolve_device(asked) == "cuda"
    assert [str(index)] == two_gpus.device_ids


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(
    two_gpus: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime only says "invalid device ordinal"."""

    def refuse(*_: object, **__: object) -> None:
        raise ModelError("CUDA failure 101: invalid device ordinal")

    del two_gpus
    monkeypatch.setattr(hardware, "open_session", refuse)
    with pytest.raises(
        ModelError, match=r"device cuda:2 was asked for, and this process sees 2 GPU\(s\): cuda:0, cuda:1"
    ):
        resolve_device("cuda:2")
    with pytest.raises(ModelError, match=r"device cuda:1 was asked for, .* CUDA failure 101"):
        resolve_device("cuda:1")


OLD_DRIVER = RuntimeError("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version")
NO_CUDNN = NotImplemented_(
    "while running ReduceMax node. cuDNN is unavailable for CUDA Execution Provider: dlopen failed"
)
OTHER_GPU = Fail("while running Exp node. CUDA error: no kernel image is available for execution on the device")


@pytest.mark.parametrize(
    ("broken", "cannot_run", "told"),
    [
        (OLD_DRIVER, None, "driver version is insufficient"),
        (None, NO_CUDNN, "cuDNN is unavailable"),
        (None, OTHER_GPU, "no kernel image"),
    ],
)
def test_cuda_that_opens_no_session_or_runs_nothing_is_refused(
    two_gpus: Opened, broken: Exception | None, cannot_run: Exception | None, told: str
) -> None:
    """The first two are found by what the probe opens with and by what it runs; `auto` takes the CPU."""
    two_gpus.broken, two_gpus.cannot_run = broken, cannot_run
    with pytest.raises(ModelError, match=rf"device cuda was asked for, and .* cannot use CUDA here: .*{told}"):
        resolve_device("cuda")
    assert resolve_device("auto") == "cpu"


def test_threads_sleep_from_the_first_session_on(two_gpus: Opened, gpu_driver: FakeDriver) -> None:
    """CU_CTX_SCHED_BLOCKING_SYNC on that GPU and no other, before a session makes its context; once."""
    two_gpus.before_opening = lambda: dict(gpu_driver.flags)
    for _ in range(2):
        assert resolve_device("cuda:1") == "cuda"
    assert [{1: 4}] == two_gpus.seen
    assert {1: 4} == gpu_driver.flags
    assert gpu_driver.calls.count("cuDevicePrimaryCtxSetFlags_v2") == 1


def test_attention_sums_in_float32_on_every_gpu(two_gpus: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashAttention 1, CUTLASS 2 and unfused 16, and not TensorRT's kernels; a report of the gate names them.

    Products summed in float16, for which ONNX Runtime reads a variable, are other arithmetic.
    """
    open_session(b"", "cuda", threads_per_run=1)
    _, options = two_gpus.providers[-1]
    assert ("19", "0") == (options["sdpa_kernel"], options["use_tf32"])
    assert arithmetic_of("cuda") == "sdpa_kernel=19 use_tf32=0 ORT_CUDA_GEMM_OPTIONS=0 disabled=MatMulAddFusion"
    assert arithmetic_of("cpu") is None
    monkeypatch.setenv("ORT_CUDA_GEMM_OPTIONS", "1")
    assert arithmetic_of("cuda") == "sdpa_kernel=19 use_tf32=0 ORT_CUDA_GEMM_OPTIONS=1 disabled=MatMulAddFusion"


def test_on_a_gpu_our_graphs_add_a_bias_apart_from_its_product(two_gpus: Opened) -> None:
    """Exporters' graphs are optimized as ONNX Runtime likes, and so is everything on a processor."""
    open_session(b"", "cuda", threads_per_run=1)
    open_session(b"", "cuda", threads_per_run=1, cpu_nodes=True)
    open_session(b"", "cpu", threads_per_run=1)
    assert [["MatMulAddFusion"], [], []] == two_gpus.disabled


@pytest.mark.parametrize(
    ("free_mib", "limit_mib"), [(20_480, 19_968), (4_096, 3_584), (1_024, 896), (0, None), (None, None)], ids=str
)
def test_a_session_leaves_memory_for_what_is_loaded_late(
    two_gpus: Opened, gpu_driver: FakeDriver, free_mib: int | None, limit_mib: int | None
) -> None:
    """512 MiB of what is free, or an eighth where that is little. No limit where nothing would be left, or nobody says."""
    gpu_driver.free_bytes = (free_mib or 0) * 2**20
    gpu_driver.refuses = {"cuMemGetInfo_v2"} if free_mib is None else set()
    open_session(b"", "cuda", threads_per_run=1, device_id=1)
    _, options = two_gpus.providers[-1]
    assert options.get("gpu_mem_limit") == (None if limit_mib is None else str(limit_mib * 2**20))


class TakesNoNode:
    """A CUDA provider without a kernel for any node: the real ONNX Runtime places them on the CPU, if it may."""

    def __init__(self, model: bytes, options: ort.SessionOptions, **_: object) -> None:
        self._session = REAL_SESSION(model, options, providers=[], enable_fallback=False)
        self.run = self._session.run

    def get_providers(self) -> list[str]:
        """As if CUDA had opened."""
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_a_node_that_cuda_lacks_is_refused_rather_than_run_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """By ONNX Runtime itself; only a model that says so may have such nodes, and it runs."""
    monkeypatch.setattr(ort, "InferenceSession", TakesNoNode)
    with pytest.raises(ModelError, match=r"opened on cuda: .*nodes that are assigned to the default CPU EP"):
        open_session(hardware._probe_model(), "cuda", threads_per_run=1)
    session = open_session(hardware._probe_model(), "cuda", threads_per_run=1, cpu_nodes=True)
    assert [1.0] == session.run(["y"], {"x": np.zeros(2, np.float32)})[0].tolist()


def test_a_provider_that_does_not_load_is_reported_as_that(two_gpus: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as nodes on the CPU, by which ONNX Runtime would refuse it first; a provider without kernels passes no probe."""
    monkeypatch.setattr(two_gpus, "get_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ModelError, match="ONNX Runtime fell back to CPUExecutionProvider"):
        resolve_device("cuda")
    assert [{}] == two_gpus.entries


def test_onnx_runtime_prints_errors_until_cuda_has_worked(two_gpus: Opened) -> None:
    """Why a provider does not load is printed and raised nowhere; later every error is raised. No warning is printed."""
    errors, nothing = 3, 4
    two_gpus.broken = OLD_DRIVER
    assert resolve_device("auto") == "cpu"
    assert [errors] == two_gpus.severities
    two_gpus.broken = None
    assert resolve_device("auto") == "cuda"
    assert [errors, errors, nothing] == two_gpus.severities


def test_only_exported_models_may_have_nodes_on_the_cpu(
    two_gpus: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In graphs of our own there is none; an exporter's graph computes shapes there."""
    monkeypatch.setattr(external, "require_answers", lambda *_, **__: None)  # this session has no graph
    shutil.copy(REFERENCE / "bert" / "config.json", tmp_path)
    export(Checkpoint.open(REFERENCE / "bert"), tmp_path)
    for source, may in ((REFERENCE / "bert", False), (tmp_path, True)):
        model = prepare(source, device="cuda", precision="fp32", cache_dir=tmp_path / "cache")
        model.open_session(threads_per_run=1, concurrency=1)
        assert may == (_CPU_FALLBACK not in two_gpus.entries[-1])


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("asked", ["cuda", "cuda:1"])
def test_without_cuda_a_gpu_is_refused_and_auto_takes_the_cpu(asked: str) -> None:
    """By the name that was asked for, with the reason, and with what to install."""
    why = rf"device {asked} was asked for, .* there is no NVIDIA driver.*pip install .kafka-enricher\[cuda\]"
    with pytest.raises(ModelError, match=why):
        resolve_device(asked)
    assert resolve_device("auto") == "cpu"


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize(
    ("device", "error", "said"),
    [("gpu:0", SettingsError, "'gpu:0' is not a device"), ("cuda:1", ModelError, "device cuda:1 was asked for")],
)
@pytest.mark.parametrize("command", [("check",), ("inspect",), ("prepare", "--out", "out"), ("tune",)])
def test_the_commands_about_models_refuse_what_is_no_device_here(
    command: tuple[str, ...], device: str, error: type[Exception], said: str
) -> None:
    """In the same words as the setting, before they do anything; and a numbered GPU that this machine does not have."""
    result = CliRunner().invoke(app, ["model", *command, "--device", device])
    assert isinstance(result.exception, error)
    assert said in str(result.exception)


def test_a_gpu_is_named_by_its_number(gpu_driver: FakeDriver) -> None:
    """As CUDA counts those that this process sees. Drivers before 11.4 know no UUID; a name is cut to the space for it."""
    uuid = "abababab-abab-abab-abab-ababababab"
    assert Gpu("NVIDIA L4", "0000:3B:00.0", f"{uuid}00") == driver.gpu(0)
    assert Gpu("NVIDIA H200", "0000:3C:00.0", f"{uuid}01") == driver.gpu(1)
    assert (None, 2) == (driver.gpu(2), driver.gpu_count())
    gpu_driver.lacks, gpu_driver.gpus = {"cuDeviceGetUuid_v2"}, ["x" * 1000]
    assert Gpu("x" * 255, "0000:3B:00.0", None) == driver.gpu(0)


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId"])
@pytest.mark.parametrize("how", ["lacks", "refuses"])
def test_a_driver_that_does_not_answer_gives_no_gpu(gpu_driver: FakeDriver, function: str, how: str) -> None:
    """It is no error."""
    setattr(gpu_driver, how, {function})
    assert driver.gpu(0) is None
    assert processor_name("cuda") == UNKNOWN_GPU


@pytest.mark.parametrize(
    "refused",
    [None, "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemGetInfo_v2"],
)
def test_free_memory_is_that_of_the_context_that_computes(gpu_driver: FakeDriver, refused: str | None) -> None:
    """It is more than 32 bits hold, and unknown where a call fails; the context is given back, whichever it is.

    Asking creates no context, which would take memory for as long as the process lives.
    """
    gpu_driver.refuses = {refused} if refused else set()
    assert (None if refused else 20 * 2**30) == driver.free_bytes(1)
    assert gpu_driver.balanced
    gpu_driver.active = False
    del gpu_driver.calls[:]
    assert driver.free_bytes(0) is None
    assert "cuDevicePrimaryCtxRetain" not in gpu_driver.calls


def test_without_a_driver_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is raised or logged."""
    monkeypatch.setattr(driver, "_library", lambda: None)
    driver.block_while_waiting.cache_clear()
    driver.block_while_waiting(0)
    assert (False, 0, None, None) == (driver.is_installed(), driver.gpu_count(), driver.gpu(0), driver.free_bytes(0))


@pytest.mark.parametrize(("how", "why"), [("lacks", "the driver has no"), ("refuses", "fails with CUDA error 999")])
@pytest.mark.usefixtures("two_gpus")
def test_a_driver_that_cannot_block_is_used_nevertheless(
    gpu_driver: FakeDriver, caplog: pytest.LogCaptureFixture, how: str, why: str
) -> None:
    """Threads then poll, which costs cores and breaks nothing; it is logged once."""
    setattr(gpu_driver, how, {"cuDevicePrimaryCtxSetFlags_v2"})
    assert ["cuda", "cuda"] == [resolve_device("cuda") for _ in range(2)]
    (logged,) = caplog.messages
    assert logged.startswith("threads that wait for the GPU take a whole core each: ")
    assert why in logged
