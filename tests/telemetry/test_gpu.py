"""The figures about the GPU in use, by a stand-in for NVIDIA's management library."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from telemetry.building import observed

from enricher.worker.telemetry.observed import GpuUse, gpu_meter
from enricher.worker.telemetry.prometheus import exposition

BUS_ID, UUID = "0000:3B:00.0", "abababab-abab-abab-abab-ababababab01"


class NVMLError(Exception):
    """As the library's: every error is one."""


class Nvml:
    """Devices by PCI bus id and by UUID; what a MIG slice does not have is refused."""

    NVMLError = NVMLError

    def __init__(self, *, mig: bool = False) -> None:
        self.devices = {BUS_ID: "NVIDIA H200", "0000:05:00.0": "NVIDIA L4"}
        self.slices = {f"MIG-{UUID}": "NVIDIA H200 MIG 1g.18gb"} if mig else {}
        self.lost = False

    def nvmlInit(self) -> None:  # noqa: N802  the library's names
        """Succeed."""

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        """The handle is the name."""
        return self._found(self.devices, bus_id)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        """Also of slices."""
        return self._found(self.slices, uuid)

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        """Refused once the device is lost."""
        if self.lost:
            raise NVMLError("GPU is lost")
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        """A slice has its own memory."""
        return SimpleNamespace(used=3, total=18 if handle in self.slices.values() else 141)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        """Not supported for slices, nor for a GPU that is divided into them."""
        if self.slices:
            raise NVMLError("Not Supported")
        return SimpleNamespace(gpu=75 if handle == "NVIDIA H200" else 0)

    @staticmethod
    def _found(handles: dict[str, str], key: str) -> str:
        if key not in handles:
            raise NVMLError("Not Found")
        return handles[key]


def read(monkeypatch: pytest.MonkeyPatch, nvml: Nvml, bus_id: str = BUS_ID) -> list[GpuUse]:
    """What the meter of that GPU says."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return list(gpu_meter(bus_id, UUID)())


def test_the_gpu_in_use_is_read_whatever_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its PCI bus id: the library counts also those that the process does not see. A slice has memory of its own."""
    assert [GpuUse("NVIDIA H200", 0.75, 3, 141)] == read(monkeypatch, Nvml())
    assert [GpuUse("NVIDIA L4", 0.0, 3, 141)] == read(monkeypatch, Nvml(), "0000:05:00.0")
    assert [GpuUse("NVIDIA H200 MIG 1g.18gb", None, 3, 18)] == read(monkeypatch, Nvml(mig=True))


def test_a_utilization_that_is_unknown_is_no_sample() -> None:
    """Nor is it 0, which would look like an idle GPU; the memory is there."""
    gpu = GpuUse("NVIDIA H200 MIG 1g.18gb", None, 3, 18)
    body, _ = exposition(replace(observed(), gpus=lambda: [gpu]), "")
    found = [line for line in body.decode().splitlines() if "1g.18gb" in line]
    assert ["hw_gpu_memory_usage_bytes", "hw_gpu_memory_limit_bytes"] == [line.partition("{")[0] for line in found]


def test_a_gpu_that_cannot_be_read_gives_no_figures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, at the start. One that is lost later the engine reports; the library is optional."""
    caplog.set_level("INFO")
    assert [] == read(monkeypatch, Nvml(), "0000:99:00.0")
    assert ["no GPU metrics: NVMLError: Not Found (install the extra `cuda`)"] == caplog.messages
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = gpu_meter(BUS_ID, None)
    assert len(meter()) == 1
    nvml.lost = True
    assert () == tuple(meter())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert () == tuple(gpu_meter(BUS_ID, UUID)())
