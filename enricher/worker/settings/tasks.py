"""The settings of tasks: `[tasks.NAME]` in TOML, one JSON object `ENRICHER_TASKS` in the environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from enricher.worker.heads import KINDS
from enricher.worker.settings.group import Group

TASKS = "tasks"
"""The group that is one JSON object in the environment."""
NAME_PATTERN = "^[a-z0-9][a-z0-9_-]{0,39}$"

if TYPE_CHECKING:
    Kind = str  # type checkers reject a computed Literal
else:
    Kind = Literal[*KINDS]

_LANGUAGE = "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"


class TaskSettings(Group):
    """One task: what it finds, with which model. All tasks of a worker have the same encoder, and share its runs."""

    source: str = Field(
        description="Folder of a checkpoint; `newswire-e5` is built in. Its head says what it finds: token "
        "classification, sequence classification, or sentence embeddings."
    )
    kind: Kind | None = Field(
        None, description="What the checkpoint must be. Default: what it is; anything else is refused at the start."
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
        description="How the answers for an article's windows become its own: their mean weighted by the tokens that each "
        "owns, the first window's, or the largest of each value. Not for `ner`.",
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
