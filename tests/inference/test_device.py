"""Which device is taken, how it is handed to ONNX Runtime, and how one that is not there is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import onnxruntime as ort
import pytest
from typer.testing import CliRunner

from enricher.cli import app
from enricher.errors import ModelError, SettingsError
from enricher.inference import device
from enricher.inference.device import cuda_problem, open_session, resolve_device
from enricher.inference.model import prepare


class Opened:
    """In the place of ONNX Runtime's sessions: notes what they are opened with, and is on CUDA where that was asked for."""

    providers: list[tuple[str, dict[str, str]]]

    def __init__(self) -> None:
        self.providers = []

    def __call__(self, _model: object, _options: object, providers: list[tuple[str, dict[str, str]]]) -> Opened:
        """Open."""
        self.providers += providers
        return self

    def get_providers(self) -> list[str]:
        """Where it runs."""
        return [self.providers[-1][0]]

    def disable_fallback(self) -> None:
        """As asked."""

    @property
    def device_ids(self) -> list[str]:
        """Of all sessions, in order."""
        return [options["device_id"] for _, options in self.providers]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A machine on which CUDA works, with two GPUs, as far as one can pretend on a CPU."""
    opened = Opened()
    monkeypatch.setattr(device, "_working", set())
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", opened)
    monkeypatch.setattr(device, "_driver_present", lambda: True)
    monkeypatch.setattr(device, "_preload_cuda_libraries", lambda: "")
    monkeypatch.setattr(device, "_gpus", lambda: 2)
    return opened


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an NVIDIA driver."""
    monkeypatch.setattr(device, "_working", set())
    monkeypatch.setattr(device, "_driver", lambda: None)


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
    """Forms and reports are those of `cuda`, whichever it is."""
    model = prepare(None, device="cuda:1", precision="fp32", cache_dir=tmp_path)
    assert ("cuda", 1, "cuda") == (model.device, model.device_id, model.form.runtime)
    assert ["1"] == two_gpus.device_ids


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(
    two_gpus: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime only says "invalid device ordinal"."""

    def refuse(*_: object, **__: object) -> None:
        raise ModelError("CUDA failure 101: invalid device ordinal")

    del two_gpus
    monkeypatch.setattr(device, "open_session", refuse)
    with pytest.raises(
        ModelError, match=r"device cuda:2 was asked for, and this process sees 2 GPU\(s\): cuda:0, cuda:1"
    ):
        resolve_device("cuda:2")
    with pytest.raises(ModelError, match=r"device cuda:1 was asked for, .* CUDA failure 101"):
        resolve_device("cuda:1")


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
    assert "'gpu:0' is no device" in str(result.exception)


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("command", [("check",), ("inspect",), ("prepare", "--out", "out"), ("tune",)])
def test_the_commands_about_models_take_a_numbered_gpu(command: tuple[str, ...]) -> None:
    """And say here, where there is none, that there is none."""
    result = CliRunner().invoke(app, ["model", *command, "--device", "cuda:1"])
    assert isinstance(result.exception, ModelError)
    assert "device cuda:1 was asked for" in str(result.exception)
