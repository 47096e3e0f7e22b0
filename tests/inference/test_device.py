"""Which device is chosen, how ONNX Runtime gets it, and how a missing one is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Lock
from typing import TYPE_CHECKING, Any, Literal

import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_
from support.patience import PATIENCE_S
from typer.testing import CliRunner

from enricher.cli import app
from enricher.errors import ModelError, SettingsError
from enricher.inference.device import cuda
from enricher.inference.device.cuda import cuda_problem
from enricher.inference.device.opening import open_session
from enricher.inference.device.resolution import resolve_device
from enricher.inference.run.model import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence


class Opened:
    """Stands for ONNX Runtime's sessions: records how they are opened, and reports CUDA if it was asked for."""

    providers: list[tuple[str, dict[str, str]]]

    def __init__(self) -> None:
        self.providers = []
        self.broken: Exception | None = None
        self.cannot_run: Exception | None = None

    def __call__(
        self, _model: object, _options: object, providers: list[tuple[str, dict[str, str]]], *, enable_fallback: bool
    ) -> Opened:
        """Open, or raise; with its fallback ONNX Runtime would not raise."""
        self.providers += providers
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
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A machine with two GPUs on which CUDA seems to work."""
    opened = Opened()
    monkeypatch.setattr(cuda, "_working", set())
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", opened)
    monkeypatch.setattr(cuda, "_driver", object)
    monkeypatch.setattr(cuda, "_preload_cuda_libraries", lambda: "")
    monkeypatch.setattr(cuda, "gpu_count", lambda: 2)
    return opened


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an NVIDIA driver."""
    monkeypatch.setattr(cuda, "_working", set())
    monkeypatch.setattr(cuda, "_driver", lambda: None)


@pytest.mark.parametrize(("runtime", "device_id"), [("cuda", "0"), ("cuda", "1"), ("cpu", None)])
def test_a_session_is_opened_on_the_gpu_that_was_asked_for(
    two_gpus: Opened, runtime: Literal["cpu", "cuda"], device_id: str | None
) -> None:
    """`device_id` is an option of the CUDA provider, beside the others; the CPU's knows no such thing."""
    open_session(b"", runtime, threads_per_run=1, device_id=int(device_id or 0))
    _, options = two_gpus.providers[-1]
    assert options.get("device_id") == device_id
    assert ("use_tf32" in options) == (runtime == "cuda")


@pytest.mark.parametrize(("asked", "index"), [("auto", "0"), ("cuda", "0"), ("cuda:0", "0"), ("cuda:1", "1")])
def test_cuda_is_tried_on_the_gpu_that_was_asked_for_and_on_no_other(two_gpus: Opened, asked: str, index: str) -> None:
    """A session on another GPU would take its memory; asking again opens none."""
    assert resolve_device(asked) == "cuda"
    assert cuda_problem() is None
    assert resolve_device(asked) == "cuda"
    assert [index] == two_gpus.device_ids


def test_a_prepared_model_knows_its_gpu_and_everyone_else_the_kind(two_gpus: Opened, tmp_path: Path) -> None:
    """Variants and reports are those of `cuda`, whichever it is."""
    model = prepare(None, device="cuda:1", precision="fp32", cache_dir=tmp_path)
    assert ("cuda", 1, "cuda") == (model.device, model.device_id, model.variant.runtime)
    assert ["1"] == two_gpus.device_ids


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(
    two_gpus: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime only says "invalid device ordinal"."""

    def refuse(*_: object, **__: object) -> None:
        raise ModelError("CUDA failure 101: invalid device ordinal")

    del two_gpus
    monkeypatch.setattr(cuda, "open_session", refuse)
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
def test_cuda_that_opens_no_session_or_runs_nothing_is_refused_with_the_reason(
    two_gpus: Opened, broken: Exception | None, cannot_run: Exception | None, told: str
) -> None:
    """The first two are found by what the probe opens with and by what it runs; `auto` takes the CPU."""
    two_gpus.broken, two_gpus.cannot_run = broken, cannot_run
    with pytest.raises(ModelError, match=rf"device cuda was asked for, and .* cannot use CUDA here: .*{told}"):
        resolve_device("cuda")
    assert resolve_device("auto") == "cpu"


def test_the_first_run_on_cuda_is_alone_and_later_ones_are_not(two_gpus: Opened) -> None:
    """While the first goes on, no other of three threads gets in; afterwards two are in at the same time."""
    session = open_session(b"", "cuda", threads_per_run=1)
    order, second, together = Lock(), Event(), Barrier(2)

    def first_runs(_outputs: Sequence[str], _feeds: object) -> list[object]:
        if order.acquire(blocking=False):
            return [second.wait(0.3)]
        second.set()
        return []

    def later_runs(_outputs: Sequence[str], _feeds: object) -> list[object]:
        return [together.wait(PATIENCE_S)]

    with ThreadPoolExecutor(3) as pool:
        two_gpus.run = first_runs  # type: ignore[method-assign]
        answers: list[Any] = list(pool.map(lambda _: session.run([], {}), range(3)))
        assert [False] in answers
        two_gpus.run = later_runs  # type: ignore[method-assign]
        answers = list(pool.map(lambda _: session.run([], {}), range(2)))
        assert [[0], [1]] == sorted(answers)


def test_a_cpu_session_needs_no_first_run_alone(two_gpus: Opened) -> None:
    """It is handed out as it is."""
    session: object = open_session(b"", "cpu", threads_per_run=1)
    assert session is two_gpus


def test_a_first_run_that_fails_leaves_the_next_one_alone_too(two_gpus: Opened) -> None:
    """Its kernel was not created; no later run waits for ever."""
    session = open_session(b"", "cuda", threads_per_run=1)
    two_gpus.cannot_run = OTHER_GPU
    for _ in range(2):
        with pytest.raises(Fail, match="no kernel image"):
            session.run([], {})
    two_gpus.cannot_run = None
    assert session.run([], {}) == []


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("asked", ["cuda", "cuda:1"])
def test_without_cuda_a_gpu_is_refused_and_auto_takes_the_cpu(asked: str) -> None:
    """By the name that was asked for, with the reason."""
    with pytest.raises(ModelError, match=rf"device {asked} was asked for, .* there is no NVIDIA driver"):
        resolve_device(asked)
    assert resolve_device("auto") == "cpu"


@pytest.mark.parametrize("command", [("check",), ("inspect",), ("prepare", "--out", "out"), ("tune",)])
def test_the_commands_about_models_refuse_what_is_no_device(command: tuple[str, ...]) -> None:
    """In the same words as the setting, before they do anything."""
    result = CliRunner().invoke(app, ["model", *command, "--device", "gpu:0"])
    assert isinstance(result.exception, SettingsError)
    assert "'gpu:0' is not a device" in str(result.exception)


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("command", [("check",), ("inspect",), ("prepare", "--out", "out"), ("tune",)])
def test_the_commands_about_models_take_a_numbered_gpu(command: tuple[str, ...]) -> None:
    """And report that this machine has none."""
    result = CliRunner().invoke(app, ["model", *command, "--device", "cuda:1"])
    assert isinstance(result.exception, ModelError)
    assert "device cuda:1 was asked for" in str(result.exception)
