"""The default size of batches in float16 on a GPU, from the model's shape and the GPU's name. Nothing here runs or measures.

A run has a fixed cost (launches of kernels, their tails) beside the work of its tokens, so a small or narrow model needs
larger batches, and a slower GPU smaller ones. `enricher model tune` measures; settings override.
"""

from __future__ import annotations

from enricher.worker.inference.checkpoint.families import EncoderConfig

FIXED_SHARE = 0.02
"""The share of a run that its fixed cost may be."""
MOST_TOKENS = 131_072
"""The largest batch that a GPU has run (scripts/tools/bench/README.md)."""
_LEAST_TOKENS = 2048
_RUN_S, _LAYER_S = 0.0002, 0.000_025
"""The fixed cost of a run and of each layer, fitted to rates on an H100 with 8,192 to 65,536 tokens and two runs at once,
which say 0.85 ms for 24 layers of 1,024, 0.37 for 12 of 768, 0.38 for 6 of 384. Alone, a run launches for 65 us a layer."""
_H100_FLOPS = 643e12
"""The rate that products of 8,192 x 8,192 sustain there."""
_OTHER_S = 20e-12
"""Time of all but the products there, for each token, layer and unit of width: attention over 256 tokens, norms, GELU."""
_H100_TFLOPS = 989
_TFLOPS = {"T4": 65, "A10G": 70, "L4": 121, "A10": 125, "A30": 165, "L40": 181, "A100": 312, "L40S": 362}
"""Products in float16 without sparsity by NVIDIA's data sheets. Any other GPU counts as an H100."""


def gpu_batch_tokens(config: EncoderConfig, gpu: str) -> int:
    """Tokens of a batch, a power of two, with which the fixed cost of a run stays below FIXED_SHARE, within bounds.

    `gpu`: the driver's name of the GPU, such as `NVIDIA L4`.
    """
    words = gpu.replace("-", " ").split()
    slower = _H100_TFLOPS / next((_TFLOPS[word] for word in words if word in _TFLOPS), _H100_TFLOPS)
    fixed_s = _RUN_S + _LAYER_S * config.layers
    wanted = fixed_s / FIXED_SHARE / (_token_s(config) * slower)
    return min(MOST_TOKENS, max(_LEAST_TOKENS, 1 << (round(wanted) - 1).bit_length()))


def _token_s(config: EncoderConfig) -> float:
    """Seconds for a token on an H100."""
    width = config.hidden_size
    flops = 2 * config.layers * (4 * width * width + 2 * width * config.intermediate_size)
    return flops / _H100_FLOPS + _OTHER_S * config.layers * width
