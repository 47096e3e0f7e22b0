"""The names of devices: which there are, and that every place which takes one refuses the rest in the same words."""

from __future__ import annotations

import re

import pytest

from enricher.errors import SettingsError
from enricher.worker.runtime.devices import DeviceName, parse_device

MALFORMED = ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:01", "cuda: 1", "cuda:1\n", "cuda:1234", "cpu:0", "auto:1"]


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("auto", DeviceName("auto")),
        ("cpu", DeviceName("cpu")),
        ("cuda", DeviceName("cuda", 0)),
        ("cuda:0", DeviceName("cuda", 0)),
        ("cuda:1", DeviceName("cuda", 1)),
        ("cuda:15", DeviceName("cuda", 15)),
    ],
)
def test_a_device_is_a_kind_and_a_number(text: str, device: DeviceName) -> None:
    """Without a number it is the first."""
    assert device == parse_device(text)


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_device_is_refused_with_what_there_is(text: str) -> None:
    """The message has the value, and examples."""
    with pytest.raises(SettingsError, match=re.escape(f"'{text}' is not a device: use auto, cpu, cuda")):
        parse_device(text)
