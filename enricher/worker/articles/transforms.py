"""Calls a team's own code: one function before the mapping, one before a record is encoded.

Nothing else calls foreign code. A function is named by its entry point in an installed package, never by a path or an
expression. It gets its own copy; what it returns is read into plain values within our bounds, and whatever it raises is
about this one article. It is not isolated: it runs in the loop's thread, with the rights of the worker. A call that
hangs is ended with the turn of the loop by the watchdog, and the rule of `rules/attempts.py` finds its record.

What the functions may do is on a page: `deploy/transforms.md`.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, TypeVar

import orjson
from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles.documents import json_bytes
from enricher.worker.articles.encoder import MAX_REASON_BYTES, clip, letter_for
from enricher.worker.articles.mapping import MAX_NAME_CHARS, METADATA_FIELDS
from enricher.worker.articles.record_values import WrittenEntities, encode_record, serialise_findings
from enricher.worker.heads import NER
from enricher.worker.records import DeadLetter, EnrichedRecord, Headers, Keep, TransformCard

GROUP = "enricher.transforms"
Answer = TypeVar("Answer")
TransformDocument = Callable[[dict[str, Any], Headers], tuple[dict[str, Any], bytes] | None]
"""A document and the record's headers to another document and its JSON; None if the article is skipped."""

_MAX_TYPES = 32
"""Error types of a function that are counted by name, because each is a time series; the rest count as `Exception`."""
_MAX_TYPE_CHARS = 100
_OUR_TYPES = {"InvalidArticle", "Skipped"}
"""The error types of this stage that are ours; their messages may be logged."""
_INT32 = 2**31 - 1


@dataclass(slots=True)
class Transform:
    """A function of a package. `setting` names it; `seconds` counts the time of its calls under the setting's group."""

    setting: str
    card: TransformCard
    function: Callable[..., Any]
    seconds: dict[str, float]
    _types: set[str] = field(default_factory=set)

    def __call__(self, read: Callable[[Any], Answer], *arguments: object) -> Answer:
        """Return what `read` makes of the function's answer.

        Raises InvalidArticle, of stage `transform`, whatever the function or `read` raises.

        SystemExit is an error like others: the end of the process would be one without a reason. Ctrl-C and a lack of memory
        pass, as no record causes them; if one does, it is found like any record that kills.
        """
        began_s, answered = time.perf_counter(), False
        try:
            answer = self.function(*arguments)
            answered = True
            return read(answer)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001  whatever foreign code raises; not chained: it may contain the article
            text = words_of(error)
            if answered and type(error) is InvalidArticle:
                failure = InvalidArticle(f"what {self.setting} returns: {text}", stage="transform")
            else:
                failure = InvalidArticle(text, stage="transform", foreign_type=self._type_of(error))
        finally:
            group = self.setting.partition(".")[0]
            self.seconds[group] = self.seconds.get(group, 0.0) + time.perf_counter() - began_s
        raise failure

    def _type_of(self, error: BaseException) -> str:
        name = type_name(error)
        if name in _OUR_TYPES:
            return "Exception"
        if len(self._types) < _MAX_TYPES:
            self._types.add(name)
        return name if name in self._types else "Exception"


def load_transform(setting: str, name: str | None, parameters: int, seconds: dict[str, float]) -> Transform | None:
    """Import the function that the setting names, which takes so many arguments. Raises SettingsError."""
    if name is None:
        return None
    found = [*entry_points(group=GROUP, name=name)]
    if not found:
        others = ", ".join(sorted({each.name for each in entry_points(group=GROUP)}))
        there_are = f"those installed are {others}" if others else "none is installed"
        raise SettingsError(f"{setting}: no package has the entry point '{name}' in the group {GROUP}; {there_are}")
    cards = sorted(
        (TransformCard(name, dist.name, dist.version) for each in found if (dist := each.dist)),
        key=lambda card: card.package,
    )
    if len(cards) > 1:
        raise SettingsError(f"{setting}: there are {' and '.join(map(str, cards))}: give one of them another name")
    try:
        with redirect_stdout(sys.stderr):  # a command's standard output is its result
            function = found[0].load()
        # A function in C may not tell its parameters.
        with suppress(ValueError):
            inspect.signature(function).bind(*[None] * parameters)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        reason = f"{type_name(error)}: {words_of(error)}"
        message = f"{setting}: {cards[0]} cannot be called with {parameters} arguments"
        raise SettingsError(f"{message}: {reason}") from error
    return Transform(setting, cards[0], function, seconds)


def type_name(value: object) -> str:
    """The name of a foreign value's type, if it is an identifier in ASCII and short; else `Exception`."""
    name = type(value).__name__
    return name if name.isascii() and name.isidentifier() and len(name) <= _MAX_TYPE_CHARS else "Exception"


def words_of(error: BaseException) -> str:
    """The message of a foreign error, on one line and bounded."""
    try:
        text = str(error)[:MAX_REASON_BYTES]
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        return "its message cannot be read"
    return clip(" ".join(text.split())).decode()


def document_transform(transform: Transform, max_bytes: int) -> TransformDocument:
    """The function before the mapping. Its document may have as many bytes, as JSON, as a value."""

    def read(answer: object) -> tuple[dict[str, Any], bytes] | None:
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            raise InvalidArticle(f"a {type_name(answer)}, neither a mapping nor None")
        text = json_bytes(answer)
        if len(text) > max_bytes:
            raise InvalidArticle(f"{len(text)} bytes as JSON, articles.max_value_bytes allows {max_bytes}")
        return orjson.loads(text), text

    return lambda document, headers: transform(read, document, headers)


def keep_records(transforms: Sequence[TransformCard], transform: Transform | None, max_bytes: int) -> Keep:
    """Serialises findings, names the transforms in each record, and calls the function before a record is encoded.

    The function may add `max_bytes` to a record.
    """
    if not transforms:
        return serialise_findings

    def keep(record: EnrichedRecord) -> EnrichedRecord | DeadLetter:
        record = serialise_findings(record, transforms)
        if transform is None:
            return record
        try:
            before = encode_record(record)
            return transform(lambda answer: _read_record(record, before, answer, max_bytes), orjson.loads(before))
        except InvalidArticle as error:
            return letter_for(error)

    return keep


def _read_record(record: EnrichedRecord, before: bytes, answer: object, max_bytes: int) -> EnrichedRecord:
    """The record as a function returned it. Raises InvalidArticle."""
    if not isinstance(answer, dict):
        raise InvalidArticle(f"a {type_name(answer)}, not a dict")
    text = json_bytes(answer)
    if text == before:
        return record
    if len(text) > len(before) + max_bytes:
        raise InvalidArticle(f"{len(text)} bytes as JSON, {len(before)} before")
    values, given = orjson.loads(text), orjson.loads(before)
    for name in sorted({*values, *given}):
        fixed = name not in _FORM and values.get(name, _ABSENT) != given.get(name, _ABSENT)
        if fixed or ((name in given) != (name in values) and name not in _OPTIONAL):
            raise InvalidArticle(f"the field {name[:MAX_NAME_CHARS]!a} differs, which only a worker writes")
    try:
        found = _VALIDATOR.validate_python({name: value for name, value in values.items() if name in _FORM})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        at = "/".join(map(str, first["loc"]))[:MAX_NAME_CHARS]
        raise InvalidArticle(f"no valid record: {ascii(at)[1:-1]}: {first['type']}") from None
    return _rebuild(record, found)


def _rebuild(record: EnrichedRecord, found: dict[str, Any]) -> EnrichedRecord:
    """The record with these fields. Raises InvalidArticle for an entity without characters, or of an unknown task."""
    kinds = {report.task.name: report.task.kind for report in record.tasks}
    default = next((name for name, kind in kinds.items() if kind == NER), "")
    labels: Counter[tuple[str, str]] = Counter()
    for each in (*found["entities"], *found.get("classifications", ())):
        task = each.get("task", default)
        of_no_task = "source" in each and "task" not in each
        if (task not in kinds and not of_no_task) or each.get("start", 0) >= each.get("end", 1):
            raise InvalidArticle(
                "no valid record: an entity or class of no task, or an entity that ends where it starts"
            )
        if not of_no_task:
            labels[task, each["label"]] += 1
    further = found.get("metadata")
    article = replace(
        record.article,
        metadata={name: found[name] for name in METADATA_FIELDS if name in found},
        further=orjson.dumps(further) if further else None,
    )
    entities = WrittenEntities(orjson.dumps(found["entities"]), len(found["entities"]))
    findings = {**record.findings, **{name: found[name] for name in found.keys() - _OPTIONAL - {"entities"}}}
    return EnrichedRecord(
        article, entities, record.coverage, record.tasks, findings, labels, record.transforms, record.catalogue
    )


def _object(fields: Mapping[str, CoreSchema], *optional: str) -> CoreSchema:
    return core_schema.typed_dict_schema(
        {name: core_schema.typed_dict_field(form, required=name not in optional) for name, form in fields.items()},
        extra_behavior="forbid",
        strict=True,
    )


_ABSENT = object()
_TEXT, _SOME_TEXT = core_schema.str_schema(strict=True), core_schema.str_schema(strict=True, min_length=1)
_SCORE = core_schema.float_schema(strict=True, ge=0.0, le=1.0)
_OPTIONAL = {*METADATA_FIELDS, "metadata"}
_FORM: Mapping[str, CoreSchema] = {
    **dict.fromkeys(METADATA_FIELDS, _TEXT),
    "metadata": core_schema.dict_schema(core_schema.str_schema(max_length=MAX_NAME_CHARS), core_schema.any_schema()),
    "entities": core_schema.list_schema(
        _object(
            {
                "field": core_schema.literal_schema(["title", "body"]),
                "start": core_schema.int_schema(strict=True, ge=0, le=_INT32),
                "end": core_schema.int_schema(strict=True, ge=1, le=_INT32),
                "text": _SOME_TEXT,
                "label": _SOME_TEXT,
                "score": _SCORE,
                "task": _SOME_TEXT,
                "ids": core_schema.list_schema(_object({"id": _SOME_TEXT, "match": _SOME_TEXT}), min_length=1),
                "id": _SOME_TEXT,
                "catalogue_name": _SOME_TEXT,
                "why": _SOME_TEXT,
                "source": _SOME_TEXT,
            },
            *("task", "ids", "id", "catalogue_name", "why", "source"),
        )
    ),
    "classifications": core_schema.list_schema(_object({"task": _SOME_TEXT, "label": _SOME_TEXT, "score": _SCORE})),
}
"""The fields of a record that a function may change, as `schemas/enriched-record.v1.schema.json` has them. All others are of
the worker, which says how the record was made, or vectors and numbers of the model."""
_VALIDATOR = SchemaValidator(_object(_FORM, *_OPTIONAL, "classifications"))
