"""The defaults that suit a model, unless settings say otherwise: its windows, languages and batches.

Windows and languages come from `enricher.json` in its folder. Such advice changes how articles are cut, not what the model
computes, so it is not part of the model's digest. The size of batches in float16 on a GPU follows from the model's shape and
the GPU's name: a run has a fixed cost (launches of kernels, their tails) beside the work of its tokens, so a small or narrow
model needs larger batches, and a slower GPU smaller ones. Nothing here runs or measures; `enricher model tune` does.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.rules.windowing import WindowCutter

ADVICE_FILE = "enricher.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class KnownLanguages(_Part):
    """A model's languages by their tags in BCP 47, in lower case. A tag includes longer ones, as `en` does `en-gb`."""

    measured: tuple[str, ...] = Field(min_length=1)
    """The languages of the labelled texts on which the model was measured."""
    trained: tuple[str, ...] = ()
    """The languages of the labelled texts on which the model was trained."""


class Advice(_Part):
    """Each field but `languages` is the default of the setting of its name."""

    max_window_tokens: int = Field(256, ge=1)
    """Special tokens included."""
    overlap_tokens: int = Field(64, ge=0)
    languages: KnownLanguages | None = None


def read_advice(folder: Path) -> Advice:
    """The folder's advice, else defaults. Raises ModelError if malformed."""
    path = folder / ADVICE_FILE
    try:
        return Advice.model_validate_json(path.read_bytes()) if path.is_file() else Advice()
    except ValidationError as error:
        found = ((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
        mistakes = "; ".join(f"{field}: {text}" if field else text for field, text in found)
        raise ModelError(
            f"{path}: {mistakes}. The file is a JSON object with {', '.join(Advice.model_fields)}"
        ) from error


def measured_languages(folder: Path) -> tuple[str, ...]:
    """The languages in which the model was measured; none if the folder names none. Raises ModelError."""
    known = read_advice(folder).languages
    return known.measured if known else ()


def advice_for(folder: Path, most_window_tokens: int) -> Advice:
    """Like `read_advice`; windows never exceed what the model takes."""
    advice = read_advice(folder)
    longest = min(advice.max_window_tokens, most_window_tokens)
    # The default overlap would be more than half of a short window, so it shrinks with it; a chosen overlap is kept.
    is_chosen = "overlap_tokens" in advice.model_fields_set
    overlap = advice.overlap_tokens if is_chosen else min(advice.overlap_tokens, longest // 4)
    return advice.model_copy(update={"max_window_tokens": longest, "overlap_tokens": overlap})


def cutter_for(tokenizer: ArticleTokenizer, window_tokens: int, overlap_tokens: int) -> WindowCutter:
    """The cutter of the model's windows, both in the worker and in the quality gate.

    Raises SettingsError if the model cannot have such windows.
    """
    if window_tokens > tokenizer.max_window_tokens:
        raise SettingsError(
            f"batching.max_window_tokens is {window_tokens}, but the model takes {tokenizer.max_window_tokens} at most"
        )
    cutter = WindowCutter(window_tokens, overlap_tokens, tokenizer.specials_before, tokenizer.specials_after)
    if cutter.content_tokens < 1:
        raise SettingsError(
            f"a window of {window_tokens} tokens holds no text besides its special tokens: allow more tokens in the "
            f"settings, in {ADVICE_FILE} or in the model"
        )
    if overlap_tokens > cutter.content_tokens // 2:
        raise SettingsError(
            f"batching.overlap_tokens is {overlap_tokens}, more than half of a window of {window_tokens} tokens: decrease "
            f"it there or in {ADVICE_FILE}"
        )
    return cutter


def default_cutter(folder: Path, tokenizer: ArticleTokenizer) -> WindowCutter:
    """The cutter for the model in a folder, unless settings say otherwise. Raises as `cutter_for` does."""
    advice = advice_for(folder, tokenizer.max_window_tokens)
    return cutter_for(tokenizer, advice.max_window_tokens, advice.overlap_tokens)


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
