"""The default size of batches on a GPU, beside what was measured on an H100 and an H200."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.advice import FIXED_SHARE, MOST_TOKENS, gpu_batch_tokens
from enricher.worker.inference.run.model import PreparedModel, open_model
from enricher.worker.records import ModelCard
from enricher.worker.wiring.loaded_tasks import default_batch_tokens
from tools import SCRIPTS
from tools.bench.gpu.checkpoints import SHAPES

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


def test_the_fixed_cost_is_within_its_share_below_the_largest_batch() -> None:
    """The fixed costs and rates are measured: 0.85 ms and 737,000 tokens/s; 0.37 ms and 2,196,000 tokens/s."""
    for shape, fixed_s, rate in ((LARGE, 0.00085, 737_000), (BASE, 0.00037, 2_196_000)):
        run_s = gpu_batch_tokens(encoder(*shape), "NVIDIA H100") / rate
        assert fixed_s / (fixed_s + run_s) <= FIXED_SHARE
