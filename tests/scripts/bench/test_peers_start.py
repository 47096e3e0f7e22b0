"""Peers that need what is not here are left out with a reason, and the others start."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from enricher.worker.inference.device.session import Device
from tools.bench.peers import line_up
from tools.bench.peers.line_up import (
    COMPILED,
    DTYPES,
    ON_THE_JVM,
    PIPELINE,
    SCRIPTED,
    LineUp,
    Peer,
    Starter,
    locked_jars,
)
from tools.bench.peers.processes import PeerFailed, PeerProcess
from tools.kafka.errors import ClusterError

PLACE = (128, 16, "cpu")


def starter(tmp_path: Path, closing: ExitStack, device: Device = "cpu") -> Starter:
    """One that has started nothing yet."""
    return Starter(tmp_path, closing, PLACE, device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_pytorch_each_of_its_peers_is_missing_by_name(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three peers in the two precisions of the device, each with the reason."""
    monkeypatch.setattr(line_up, "torch_python", lambda: "not measured: PyTorch is not installed")
    with ExitStack() as closing:
        here = starter(tmp_path, closing, device)
        here.on_pytorch(tmp_path)
    names = {name.format(each) for name in (PIPELINE, SCRIPTED, COMPILED) for each in DTYPES[device]}
    assert dict.fromkeys(names, "not measured: PyTorch is not installed") == here.missing
    assert [] == here.peers


def test_without_jars_djl_is_missing_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the sentence of the download."""

    def offline(_device: Device, _folder: Path) -> list[str]:
        raise ClusterError("Could not fetch ai.djl:api:0.38.0: no network")

    monkeypatch.setattr(line_up, "djl_launcher", offline)
    with ExitStack() as closing:
        here = starter(tmp_path, closing)
        here.on_the_jvm(tmp_path)
    assert {ON_THE_JVM: "not measured: Could not fetch ai.djl:api:0.38.0: no network"} == here.missing


def test_a_peer_that_cannot_work_here_is_left_out_with_the_end_of_its_output() -> None:
    """The others stay."""
    with PeerProcess("tools.bench.peers.none") as broken, PeerProcess("tools.bench.peers.naive_worker") as whole:
        others = Peer("whole", whole, [{}])
        lined_up = LineUp([Peer("broken", broken, [{}]), others], {})
        with pytest.raises(PeerFailed) as failure:
            broken.hear()
        lined_up.leave_out(lined_up.peers[0], str(failure.value))
    assert [others] == lined_up.peers
    assert lined_up.missing["broken"].startswith("not measured: ")
    assert "No module named" in lined_up.missing["broken"]


@pytest.mark.parametrize(("device", "runtime"), [("cpu", "onnxruntime"), ("cuda", "onnxruntime_gpu")])
def test_djl_runs_on_locked_jars_with_one_onnx_runtime(device: Device, runtime: str) -> None:
    """A second one on the class path would make it chance which device is used."""
    jars = locked_jars(device)
    runtimes = [jar.coordinates for jar in jars if "com.microsoft.onnxruntime" in jar.coordinates]
    assert [runtime] == [coordinates.split(":")[1] for coordinates in runtimes]
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in jars)
