"""What serves on a GPU: packed fp16 with a report, packed fp32 without, padded where neither runs; and in what batches."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from inference.exports import write_export
from support.reports import report

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import arithmetic_of
from enricher.worker.inference.graph import packed_cuda, padded
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat16, PaddedFloat32
from enricher.worker.inference.run import model
from enricher.worker.inference.run.advice import MOST_TOKENS, gpu_batch_tokens
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare
from enricher.worker.inference.run.selection import choose, missing_reports
from enricher.worker.records import ModelCard
from enricher.worker.wiring.loaded_tasks import default_batch_tokens
from enricher.workshop.gate.report import write_report
from tools import SCRIPTS
from tools.bench.gpu.checkpoints import SHAPES, Shape, write_checkpoint

SHAPE = Shape(
    model_type="bert",
    vocab_size=97,
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=130,
)
PADDED = PaddedFloat32(runtime="cuda")
ARITHMETIC = arithmetic_of("cuda")


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA works, as far as choosing a variant goes."""
    monkeypatch.setattr(packed_cuda, "_cuda_problem", lambda: None)
    monkeypatch.setattr(padded, "cuda_problem", lambda: None)
    monkeypatch.setattr(model, "resolve_device", lambda *_asked: "cuda")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A model without any report."""
    return open_model(write_checkpoint(tmp_path / "model", SHAPE))


def with_heads(folder: Path, size: int) -> Checkpoint:
    """A model with two heads of that size."""
    return open_model(write_checkpoint(folder, replace(SHAPE, hidden_size=2 * size)))


def test_with_a_passing_report_fp16_serves(checkpoint: Checkpoint) -> None:
    """A report about packed fp32 is nobody's."""
    write_report(checkpoint.folder, report(checkpoint, PackedCudaFloat32(), arithmetic=ARITHMETIC))
    assert PackedCudaFloat32() == choose([checkpoint], "cuda", "auto").variant
    write_report(checkpoint.folder, report(checkpoint, PackedFloat16(), arithmetic=ARITHMETIC))
    assert PackedFloat16() == choose([checkpoint], "cuda", "auto").variant


@pytest.mark.parametrize("size", [8, 24, 64, 256])
def test_heads_that_a_fused_kernel_takes_run_packed(size: int, tmp_path: Path) -> None:
    """Multiples of 8 up to FlashAttention's largest."""
    assert PackedCudaFloat32() == choose([with_heads(tmp_path / "model", size)], "cuda", "auto").variant


@pytest.mark.parametrize("size", [4, 20, 36, 264])
def test_other_heads_run_padded_in_fp32_and_no_report_is_asked_for(size: int, tmp_path: Path) -> None:
    """By auto and by name; fp16 is refused with the size, even with a report."""
    odd = with_heads(tmp_path / "model", size)
    write_report(odd.folder, report(odd, PackedFloat16(), arithmetic=ARITHMETIC))
    choice = choose([odd], "cuda", "auto")
    assert PADDED == choice.variant == choose([odd], "cuda", "fp32").variant
    packed = {variant.name: why for variant, why in choice.rejected if variant.packs}
    assert ["packed-fp16", "packed-cuda-fp32"] == list(packed)
    assert all(f"heads have size {size}" in why for why in packed.values())
    assert [] == missing_reports([odd], "cuda", None)
    with pytest.raises(ModelError, match=rf"fp16 does not run here: its attention heads have size {size}"):
        choose([odd], "cuda", "fp16")


def test_a_model_that_is_onnx_already_runs_padded(tmp_path: Path) -> None:
    """The choice names the variant that runs, and nothing is said of heads, which its configuration may lack."""
    odd = open_model(write_export("bert", None, tmp_path / "exported"))
    choice = choose([odd], "cuda", "auto")
    assert PADDED == choice.variant == choose([odd], "cuda", "fp32").variant
    assert all("runs padded" in why for variant, why in choice.rejected if variant.packs)
    command = f"enricher model check {odd.folder} --precision fp16 --device cuda"
    assert [command] == missing_reports([odd], "cuda", None)
    with pytest.raises(ModelError, match=f"fp16 is refused: there is no gate report for padded-fp16; `{command}`"):
        choose([odd], "cuda", "fp16")
    write_report(odd.folder, report(odd, PaddedFloat16(), arithmetic=ARITHMETIC))
    assert PaddedFloat16() == choose([odd], "cuda", "auto").variant == choose([odd], "cuda", "fp16").variant
    write_report(odd.folder, report(odd, PaddedFloat16(), passed=False, arithmetic=ARITHMETIC))
    assert PADDED == choose([odd], "cuda", "auto").variant


def test_the_log_says_what_is_lost_without_the_report_and_how_to_make_it(
    checkpoint: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning with the command and a factor that is called calculated; none once the report is there."""
    with caplog.at_level(logging.INFO, logger="enricher"):
        prepared = prepare(checkpoint.folder, device="cuda", precision="auto", cache_dir=tmp_path / "cache")
    assert PackedCudaFloat32() == prepared.variant
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
    assert f"`enricher model check {checkpoint.folder} --precision fp16 --device cuda` makes one. " in warning
    assert "three to ten times as fast" in warning
    write_report(checkpoint.folder, report(checkpoint, PackedFloat16(), arithmetic=ARITHMETIC))
    caplog.clear()
    prepared = prepare(checkpoint.folder, device="cuda", precision="auto", cache_dir=tmp_path / "cache")
    assert (PackedFloat16(), []) == (prepared.variant, [each for each in caplog.records if each.levelno > logging.INFO])


RESULTS = SCRIPTS / "tools" / "bench" / "results"
MINILM, BASE, LARGE = (6, 384), (12, 768), (24, 1024)


def encoder(layers: int, width: int) -> EncoderConfig:
    """A model of these layers, four times as wide inside."""
    return EncoderConfig.model_validate(
        {
            "model_type": "bert",
            "architectures": ["BertForTokenClassification"],
            "vocab_size": 10,
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // 64,
            "hidden_act": "gelu",
            "max_position_embeddings": 512,
        }
    )


@pytest.mark.parametrize(
    ("shape", "gpu", "tokens"),
    [
        (LARGE, "NVIDIA H100 80GB HBM3", 32_768),
        (LARGE, "NVIDIA H200", 32_768),
        (BASE, "NVIDIA H100 80GB HBM3", 65_536),
        (MINILM, "NVIDIA H100 80GB HBM3", MOST_TOKENS),
        (LARGE, "NVIDIA A100-SXM4-80GB", 16_384),
        (BASE, "NVIDIA L4", 8_192),
        (MINILM, "NVIDIA L4", 32_768),
        (LARGE, "Tesla T4", 2_048),
        (LARGE, "a GPU of next year", 32_768),
    ],
)
def test_a_batch_is_as_large_as_model_and_gpu_need(shape: tuple[int, int], gpu: str, tokens: int) -> None:
    """The larger, the smaller the model is and the faster the GPU."""
    assert tokens == gpu_batch_tokens(encoder(*shape), gpu)


def rates(results: str, shape: str) -> dict[int, float]:
    """The best measured tokens per second in windows of 256, by batch size; two runs at once."""
    best: dict[int, float] = {}
    for line in (RESULTS / results / "gpu.jsonl").read_text().splitlines():
        row = json.loads(line)
        of_ours = row.get("leg") in {"packed-fp16", "packed-fp16, add"} and row.get("case") == "256 each"
        if of_ours and row["shape"] == shape and row["threads"] == 2:
            best[row["batch_tokens"]] = max(best.get(row["batch_tokens"], 0.0), row["tokens_per_s"])
    return best


@pytest.mark.parametrize("results", ["gpu", "gpu-h200", "gpu-bias"])
@pytest.mark.parametrize("shape", ["bert-base", "xlm-r-large"])
def test_no_measured_batch_is_much_faster_than_the_default(results: str, shape: str) -> None:
    """The default, or the nearest measured size below it, is within 6 % of the best measured size."""
    found = rates(results, shape)
    config = SHAPES[shape]
    default = gpu_batch_tokens(encoder(config.num_hidden_layers, config.hidden_size), "NVIDIA H100 80GB HBM3")
    nearest = max(size for size in found if size <= default)
    assert found[nearest] >= 0.94 * max(found.values())


def test_only_packed_fp16_on_a_gpu_has_a_size_of_its_own(tmp_path: Path) -> None:
    """The defaults of the other variants do not depend on the model."""
    prepared = PreparedModel(tmp_path, open_model(None), ModelCard("model", "0", "fp16"), "cuda", PackedFloat16())
    assert MOST_TOKENS == default_batch_tokens(prepared)
    assert 8_192 == default_batch_tokens(replace(prepared, variant=PackedCudaFloat32()))
    assert 8_192 == default_batch_tokens(replace(prepared, variant=PaddedFloat32(runtime="cuda")))
    assert 512 == default_batch_tokens(replace(prepared, variant=PaddedFloat32()))
