"""The settings, one class per room, each field with unit, default and reason. What is read from where: `sources.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field

from enricher.errors import SettingsError
from enricher.runtime.devices import parse_device
from enricher.settings.group import Group


def _device(text: str) -> str:
    """A device's name as it is, once it is known to be one: pydantic wants a ValueError."""
    try:
        parse_device(text)
    except SettingsError as error:
        raise ValueError(error) from error
    return text


class ModelSettings(Group):
    """Which model, on which device."""

    source: str = Field(
        "newswire-minilm", description="Folder of a token-classification model; `newswire-minilm` is built in."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto",
        description="`auto`, `cpu`, `cuda`, or one GPU of several as CUDA counts them: `cuda:0`, `cuda:1`, ... `cuda` "
        "refuses to start without CUDA; `auto` takes it where it works.",
    )
    precision: Literal["auto", "fp16", "bf16", "fp32", "int8"] = Field(
        "auto", description="`auto`: the fastest that runs and passed its gate; only `fp32` may serve without."
    )
    concurrency: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Runs at the same time on the device. Default: what was tuned, else one per CPU core, two on a GPU. "
        "The processes of `run --processes` divide the cores among them.",
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher"), description="Folder for graphs made from checkpoints."
    )


class BatchingSettings(Group):
    """How windows are cut and gathered."""

    max_batch_tokens: int | None = Field(
        None,
        ge=16,
        le=1_000_000,
        description="Tokens (padding included) of one batch. Default: what `enricher model tune` found here, else 512 on "
        "CPU (1024 in bf16), 8192 on a GPU.",
    )
    max_wait_ms: float = Field(50.0, ge=0, le=60_000, description="Milliseconds that a window may wait for company.")
    bucket_edges: tuple[int, ...] | None = Field(
        None,
        min_length=1,
        description="Longest window of each length bucket, in tokens, growing, e.g. `[32, 64, 128]`: a bucket that fills a "
        "batch is ready before its time. Default: what was tuned, else steps of 8 to 32 up to 512.",
    )
    max_window_tokens: int | None = Field(
        None,
        ge=8,
        description="Tokens of one window, special tokens included. Default: what suits the model (`enricher.json` in its "
        "folder), else 256.",
    )
    overlap_tokens: int | None = Field(
        None,
        ge=0,
        description="Tokens that neighbouring windows of a long article share. Default: what suits the model, else 64.",
    )
    run_overhead_tokens: int | None = Field(
        None,
        ge=0,
        description="Fixed cost of one run, in tokens: a batch takes windows of other lengths along while padding them "
        "costs less than their share of a later run. "
        "Default: what was tuned, else 16.",
    )


class ArticleSettings(Group):
    """What counts as an article, and how large things may be."""

    max_value_bytes: int = Field(
        4_194_304,
        ge=1_000,
        description="Bytes of an input record's value; more is a dead letter before anything is parsed, because hostile "
        "JSON takes 0.15 s for each megabyte. Default: four times what a topic takes by default, and what "
        "`max_article_chars` characters take at most in UTF-8.",
    )
    max_headers: int = Field(
        300,
        ge=0,
        le=100_000,
        description="Headers of an input record; an article with more is a dead letter without them. Each takes 176 bytes "
        "of memory beside its name and value, however small it is in the topic.",
    )
    max_article_chars: int = Field(1_000_000, ge=1, description="Characters of title and body; more is a dead letter.")
    max_article_tokens: int = Field(
        100_000, ge=1, description="Tokens of title and body; what to do beyond: `too_long`."
    )
    too_long: Literal["truncate", "dead_letter"] = Field(
        "truncate",
        description="Above `max_article_tokens`: enrich the beginning, to the end of a word, and say so, or dead-letter.",
    )
    max_record_bytes: int = Field(
        1_000_000,
        ge=1_000,
        description="Bytes of an enriched record; more is a dead letter. The topic's own `max.message.bytes` counts if it "
        "is smaller and the worker may ask for it (DESCRIBE_CONFIGS).",
    )
    max_dead_letter_bytes: int = Field(
        16_000_000,
        ge=10_000,
        description="Bytes of a dead letter; above, its value is left out. The topic's own `max.message.bytes` counts "
        "if it is smaller and the worker may ask for it (DESCRIBE_CONFIGS).",
    )


class WorkerSettings(Group):
    """The bounds of every queue and wait."""

    max_in_flight_articles: int = Field(
        10_000, ge=1, description="Articles read and not yet committed: what a crash or a rebalance makes work again."
    )
    max_in_flight_bytes: int = Field(256_000_000, ge=1_000_000, description="Bytes of the same.")
    backlog_batches: int = Field(32, ge=1, description="Batches' worth of tokens to hold, so that batches are full.")
    tokenizer_threads: int | None = Field(
        None, ge=1, le=64, description="Threads that tokenise. Default: one for each two cores, four at most."
    )
    chars_per_tokenizer_call: int = Field(
        32_768,
        ge=1,
        le=10_000_000,
        description="Characters of text per call of the tokenizer; a longer article goes alone.",
    )
    publish_interval_ms: float = Field(
        250.0, ge=0, le=60_000, description="Milliseconds between transactions: lower is fresher, higher is cheaper."
    )
    poll_interval_ms: float = Field(
        20.0, gt=0, le=10_000, description="Milliseconds between looks for new articles while the model is busy."
    )
    idle_wait_ms: float = Field(
        250.0,
        gt=0,
        le=10_000,
        description="Milliseconds of one wait when there is nothing to do; also how fast it stops.",
    )
    pause_after_s: float = Field(
        2.0, ge=0, description="Seconds without room before the partitions are paused, so that polling can go on."
    )
    stall_timeout_s: float = Field(
        60.0, ge=1, description="Seconds for one turn of the loop; beyond, the watchdog ends the process."
    )
    engine_timeout_s: float = Field(120.0, ge=1, description="Seconds without a finished batch while some are running.")
    drain_timeout_s: float = Field(20.0, ge=0, description="Seconds to finish what is on the device when stopping.")
    recovery_timeout_s: float = Field(
        300.0,
        ge=1,
        description="Seconds to try one recovery, or to wait for brokers at the start, before the process ends with 6.",
    )
    max_recoveries_in_a_row: int = Field(
        10, ge=1, description="Recoveries without a successful transaction between them before the process ends."
    )
    max_deaths_at_offset: int = Field(
        3,
        ge=0,
        description="Processes that may end at one committed offset before the next one takes one article at a time, to "
        "find the one that kills: a dead letter after it has ended two processes alone. 0: never.",
    )
    restart_pause_s: float = Field(
        1.0,
        ge=0,
        le=30,
        description="Seconds before `run --processes` starts a dead process again; doubled each time in a row, up to 30 s.",
    )
    restart_stable_s: float = Field(
        60.0,
        ge=0,
        description="Seconds that a process must have been ready for its next restart not to count as in a row.",
    )
    max_restarts_in_a_row: int = Field(
        5, ge=0, description="Restarts of one process in a row before all end, with its exit code."
    )
