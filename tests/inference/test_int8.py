"""The int8 variant: what is quantised, where it is refused, and what sharing a batch does to it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from enricher.inference.checkpoint.folder import Checkpoint
from enricher.inference.graph import int8
from enricher.inference.graph.int8 import PaddedInt8
from enricher.inference.run.model import prepare_variant

REFERENCE = Path(__file__).parent.parent / "data" / "reference"


def _operators(variant: PaddedInt8, cache_dir: Path, family: str = "bert") -> Counter[str]:
    model = prepare_variant(Checkpoint.open(REFERENCE / family), variant, "cpu", cache_dir=cache_dir)
    return Counter(node.op_type for node in onnx.load(str(model.onnx_path), load_external_data=False).graph.node)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_products_are_quantised_and_nothing_else(family: str, tmp_path: Path) -> None:
    """Every product is an integer one; embeddings stay as they are."""
    layers = Checkpoint.open(REFERENCE / family).config.layers
    projection = Checkpoint.open(REFERENCE / family).config.embedding_size not in {None, 64}
    operators = _operators(PaddedInt8(), tmp_path, family)
    assert (6 * layers + 1 + projection, 0) == (operators["MatMulInteger"], operators["MatMul"])
    assert operators["DequantizeLinear"] == 0


def test_files_can_be_read_by_whoever_can_read_the_cache(tmp_path: Path) -> None:
    """The quantiser writes for its own user only; a cache is shared."""
    path = prepare_variant(Checkpoint.open(REFERENCE / "bert"), PaddedInt8(), "cpu", cache_dir=tmp_path).onnx_path
    assert {path.stat().st_mode} == {each.stat().st_mode for each in path.parent.iterdir()}
    assert {"model.onnx", "model.onnx.data"} >= {each.name for each in path.parent.iterdir()}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("avx2 avx512f", "the processor has neither VNNI nor AMX"),
        ("avx512_vnni", None),
        ("avx_vnni", None),
        ("amx_int8", None),
    ],
)
def test_a_processor_without_int8_products_is_refused(
    flags: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX512 alone is not VNNI: sums would saturate."""
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: fpu vme {flags} sse\n")
    monkeypatch.setattr(int8, "CPU_INFO", tmp_path / "cpuinfo")
    assert problem == PaddedInt8().problem()


def test_a_system_that_does_not_say_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better float32 than wrong answers."""
    monkeypatch.setattr(int8, "CPU_INFO", tmp_path / "none")
    assert "does not say" in (PaddedInt8().problem() or "")
