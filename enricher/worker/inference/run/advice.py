"""The windows that suit a model, and its languages, from `enricher.json` in its folder. Settings override it.

Advice changes how articles are cut, not what the model computes, so it is not part of the model's digest.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import ModelError, SettingsError
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
