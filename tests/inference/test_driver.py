"""What the driver says about a GPU, and how it is asked to wait, by a stand-in that is called as C."""

from __future__ import annotations

import pytest
from support.gpu_driver import FakeDriver

from enricher.worker.inference.device import driver
from enricher.worker.inference.device.driver import Gpu
from enricher.worker.inference.device.processor import UNKNOWN_GPU, processor_name


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver that shows two GPUs."""
    return FakeDriver().install(monkeypatch)


def test_a_gpu_is_named_by_its_number(fake: FakeDriver) -> None:
    """As CUDA counts those that this process sees, whatever its handles are."""
    uuid = "abababab-abab-abab-abab-ababababab"
    assert Gpu("NVIDIA L4", "0000:3B:00.0", f"{uuid}00") == driver.gpu(0)
    assert Gpu("NVIDIA H200", "0000:3C:00.0", f"{uuid}01") == driver.gpu(1)
    assert (None, 2) == (driver.gpu(2), driver.gpu_count())
    assert ["NVIDIA L4", "NVIDIA H200"] == [processor_name("cuda", index) for index in range(len(fake.gpus))]


def test_a_name_of_any_length_and_bytes_is_taken(fake: FakeDriver) -> None:
    """The driver cuts it to the space that it was given."""
    fake.gpus = ["x" * 1000]
    assert "x" * 255 == processor_name("cuda")


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId"])
@pytest.mark.parametrize("how", ["lacks", "refuses"])
def test_a_driver_that_does_not_answer_gives_no_gpu(fake: FakeDriver, function: str, how: str) -> None:
    """It is no error."""
    setattr(fake, how, {function})
    assert driver.gpu(0) is None
    assert processor_name("cuda") == UNKNOWN_GPU


def test_a_driver_that_knows_no_uuid_knows_the_rest(fake: FakeDriver) -> None:
    """Those before 11.4 have none that tells slices apart."""
    fake.lacks = {"cuDeviceGetUuid_v2"}
    assert Gpu("NVIDIA L4", "0000:3B:00.0", None) == driver.gpu(0)


def test_free_memory_is_that_of_the_context_that_computes(fake: FakeDriver) -> None:
    """It is more than 32 bits hold; the context is given back."""
    assert 20 * 2**30 == driver.free_bytes(1)
    assert fake.balanced


@pytest.mark.parametrize(
    "function",
    ["cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemGetInfo_v2"],
)
def test_free_memory_is_unknown_if_the_driver_refuses(fake: FakeDriver, function: str) -> None:
    """The context is given back, whichever call fails."""
    fake.refuses = {function}
    assert driver.free_bytes(0) is None
    assert fake.balanced


def test_asking_for_free_memory_creates_no_context(fake: FakeDriver) -> None:
    """It would take memory for as long as the process lives."""
    fake.active = False
    assert driver.free_bytes(0) is None
    assert "cuDevicePrimaryCtxRetain" not in fake.calls


def test_without_a_driver_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is raised or logged."""
    monkeypatch.setattr(driver, "_library", lambda: None)
    driver.block_while_waiting.cache_clear()
    driver.block_while_waiting(0)
    assert (False, 0, None, None) == (driver.is_installed(), driver.gpu_count(), driver.gpu(0), driver.free_bytes(0))


@pytest.mark.parametrize(("how", "why"), [("lacks", "the driver has no"), ("refuses", "fails with CUDA error 999")])
def test_a_driver_that_cannot_block_is_logged_once(
    fake: FakeDriver, caplog: pytest.LogCaptureFixture, how: str, why: str
) -> None:
    """Threads then poll, which costs cores and breaks nothing."""
    setattr(fake, how, {"cuDevicePrimaryCtxSetFlags_v2"})
    for _ in range(2):
        driver.block_while_waiting(0)
    (logged,) = caplog.messages
    assert logged.startswith("threads that wait for the GPU take a whole core each: ")
    assert why in logged
