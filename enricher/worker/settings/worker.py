"""The settings of the work itself: model, tasks, batching, dead letters, the loop, health and the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, field_validator, model_validator

from enricher.errors import SettingsError
from enricher.worker.runtime.devices import Precision, parse_device
from enricher.worker.settings.group import Group

TASKS = "tasks"
"""The group that is one JSON object in the environment."""
NAME_PATTERN = "^[a-z0-9][a-z0-9_-]{0,39}$"
USUAL_PORT = 8080
USUAL_PROBE_PORT = 8180
"""The usual port of the probes, far from the page's: `run --processes` uses that port and up to 63 following ones."""
_LANGUAGE = "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"


def _device(text: str) -> str:
    """Check a device name; pydantic needs a ValueError."""
    try:
        parse_device(text)
    except SettingsError as error:
        raise ValueError(error) from error
    return text


class ModelSettings(Group):
    """Which model, on which device."""

    source: str = Field(
        "newswire-e5",
        description="Folder of a token-classification model, or an ONNX file in one; `newswire-e5` is built in.",
    )
    generation: int = Field(
        0,
        ge=0,
        le=4095,
        description="The lowest part of `enricher.version`. Raise it with a better model before articles are enriched "
        "again (`enricher replay`): in an index, the record of the higher generation then replaces the earlier ones of the "
        "same article, and never that of a newer article.",
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto",
        description="`auto`, `cpu`, `cuda`, or one of several GPUs in CUDA's order: `cuda:0`, `cuda:1`, ... `cuda` "
        "refuses to start without CUDA; `auto` uses it if it works.",
    )
    precision: Precision = Field(
        "auto", description="`auto`: the fastest that runs and passed its quality gate; only `fp32` needs no gate."
    )
    concurrency: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Runs of the model in progress at once on the device. Default: one per CPU core, two on a "
        "GPU. The processes of `run --processes` share the cores.",
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher"), description="Folder for graphs made from checkpoints."
    )


class TaskSettings(Group):
    """One task: what it finds, with which model. All tasks of a worker have the same encoder, and share its runs."""

    source: str = Field(
        description="Folder of a checkpoint, or an ONNX file in one; `newswire-e5` is built in. Its head says what it "
        "finds: token classification, sequence classification, or sentence embeddings."
    )
    languages: tuple[Annotated[str, Field(pattern=_LANGUAGE)], ...] | None = Field(
        None,
        min_length=1,
        description="The task runs on articles in these languages (BCP 47; `en` includes `en-GB`, `eng` and `eng_Latn`). "
        "Default: all.",
    )
    default: bool = Field(
        default=False, description="With `languages`: the task also runs on articles that have no language."
    )
    pooling: Literal["mean", "first_window", "max"] = Field(
        "mean",
        description="How the answers for windows become that for their article: their mean weighted by the tokens that each "
        "window owns, the first window's, or the largest of each value. Not for `ner`.",
    )
    threshold: float | dict[str, float] | None = Field(
        None,
        description="Least probability of a finding, above 0 and below 1: of a class where several may hold at once "
        '(default: 0.5), or of an entity (default: none). One number, or one for each label, e.g. `{"PER": 0.9}`; labels '
        "that are not named have the default.",
    )
    vector: Literal["list", "float16"] = Field(
        "list",
        description="How records contain an embedding: numbers, or float16 (little-endian) in base64, half as large.",
    )

    @field_validator("threshold")
    @classmethod
    def _is_probability(cls, value: float | dict[str, float] | None) -> float | dict[str, float] | None:
        numbers = value.values() if isinstance(value, dict) else [] if value is None else [value]
        if not all(0 < number < 1 for number in numbers):
            raise ValueError("a threshold is above 0 and below 1")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> TaskSettings:
        if self.default and self.languages is None:
            raise ValueError("`default` says nothing without `languages`: the task runs on all articles anyway")
        return self


def check_tasks(tasks: Mapping[str, TaskSettings], *, of_model: Collection[str]) -> None:
    """Raise ValueError for `model.source`, which has no effect beside tasks. `of_model`: the fields that are set."""
    if tasks and "source" in of_model:
        raise ValueError(
            "model.source has no effect beside tasks: name that model in a task, [tasks.NAME] source = ..."
        )


class BatchingSettings(Group):
    """How articles are cut into windows, and windows combined into batches."""

    max_batch_tokens: int | None = Field(
        None,
        ge=16,
        le=1_000_000,
        description="Tokens (padding included) of one batch. Default: 512 on CPU (1024 in bf16 and int8), "
        "on a GPU 8192 in fp32, and in fp16 by model and GPU: on an H100 32768 for 24 layers of 1024, 131072 for 6 of 384. "
        "`enricher model tune` measures it.",
    )
    max_wait_ms: float = Field(
        50.0, ge=0, le=60_000, description="Milliseconds that a window may wait for others to share a batch."
    )
    bucket_edges: tuple[int, ...] | None = Field(
        None,
        min_length=1,
        description="Longest window of each length bucket, in tokens, increasing, e.g. `[32, 64, 128]`: a bucket that "
        "fills a batch is ready at once. Default: steps of 8 to 32 up to 512.",
    )
    max_window_tokens: int | None = Field(
        None,
        ge=8,
        description="Tokens of one window, special tokens included. Default: `enricher.json` in the model's folder, else "
        "256.",
    )
    overlap_tokens: int | None = Field(
        None,
        ge=0,
        description="Tokens that neighbouring windows of a long article share. Default: `enricher.json` of the model, "
        "else 64.",
    )


WINDOW_ARTICLES = 1_000
"""The number of most recently published articles of which `dead_letters.max_ratio` is a share."""


class DeadLetterSettings(Group):
    """Limits beyond which the worker commits no more dead letters, because the deployment is wrong and not the articles."""

    max_in_a_row: int = Field(
        300,
        ge=0,
        description="Dead letters in a row, over all partitions of a worker; it ends with exit code 12 before it commits "
        "one more, and no worker reads on there before `enricher dead-letters accept`. Tombstones do not count. 0: no "
        "limit.",
    )
    max_ratio: float = Field(
        0.5,
        ge=0,
        le=1,
        description="The share that dead letters may have of the last 1,000 articles; while there are fewer, the same "
        "number is allowed. 0: no limit.",
    )


class WorkerSettings(Group):
    """The bounds of every queue and wait."""

    max_in_flight_articles: int = Field(
        10_000, ge=1, description="Articles read and not yet committed: the work that a crash or a rebalance repeats."
    )
    max_in_flight_bytes: int = Field(
        256_000_000,
        ge=1_000_000,
        description="Bytes of the records read and not yet committed. What is kept beside them, such as "
        "`articles.metadata`, may take as much again.",
    )
    max_articles_per_second: float = Field(
        0.0,
        ge=0,
        le=1_000_000,
        description="Articles that each process reads per second, on average over some seconds. For replays next to live "
        "workers. 0: no limit.",
    )
    tokenizer_threads: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Threads that tokenise. Default: one per two cores, at most four; beside a GPU one per core, at most "
        "four. Several processes share the cores.",
    )
    publish_interval_ms: float = Field(
        250.0,
        ge=0,
        le=60_000,
        description="The longest time from one transaction to the next, in ms; under load it is always this long. Longer is "
        "cheaper for the brokers.",
    )
    stall_timeout_s: float = Field(
        60.0, ge=1, description="Seconds for one turn of the loop; after that the watchdog ends the process."
    )
    engine_timeout_s: float = Field(
        120.0, ge=1, description="Seconds without a finished batch while some are running; after that the process ends."
    )
    drain_timeout_s: float = Field(20.0, ge=0, description="Seconds to finish the batches on the device when stopping.")
    recovery_timeout_s: float = Field(
        300.0,
        ge=1,
        description="Seconds to try one recovery, or to connect at the start, before the process ends with exit code 6.",
    )


class HealthSettings(Group):
    """The ports for probes, metrics and the status page."""

    enabled: bool = Field(
        default=True, description="Serve /livez, /readyz, /startupz, /metrics and the status page over HTTP."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of both ports. In a pod `::`, every address of IPv6 and IPv4, because the kubelet and "
        "Prometheus connect from outside.",
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Port of the status page and /metrics. Default: 8080, or any free port if 8080 is taken; a port that is "
        "set must be free. With `run --processes` the first process has this port, the others the following ones.",
    )
    probe_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="Port of /livez, /readyz and /startupz, which only the kubelet needs. Default: 8180, or any free port "
        "if 8180 is taken; a port that is set must be free. With `run --processes` the parent has this port, and the "
        "processes the following ones.",
    )


class LogSettings(Group):
    """The format of the log on standard error."""

    format: Literal["auto", "json", "text"] = Field(
        "auto", description="`json`: one object per line; `text`: for people; `auto`: text on a terminal, else JSON."
    )
