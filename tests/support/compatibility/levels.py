"""The levels of compatibility: which schema reads what the other one writes, and which findings count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import Any

from enricher.worker.contracts import SchemaType
from support.compatibility.findings import Finding, SchemaUnusable, Sides, Violation, Weight

_BACKWARD = Sides(writer="old", reader="new")
_FORWARD = Sides(writer="new", reader="old")
_OF_THE_REGISTRY = {Weight.BREAKS, Weight.READER_KNOWS_MORE, Weight.WRITER_KNOWS_MORE, Weight.REGISTRY}
_OF_THE_PROMISE = {
    _BACKWARD: {Weight.BREAKS, Weight.WRITER_KNOWS_MORE, Weight.PROMISED},
    _FORWARD: {Weight.BREAKS, Weight.READER_KNOWS_MORE},
}


class Level(StrEnum):
    """A registry's levels, and `PROMISE`, ours. Of two schemas, a level and its `_TRANSITIVE` form say the same."""

    PROMISE = "PROMISE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    def counted(self) -> Iterator[tuple[Sides, set[Weight]]]:
        """Each direction that this level looks in, and the findings that count there."""
        if self is Level.PROMISE:
            yield from _OF_THE_PROMISE.items()
        if self.startswith(("BACKWARD", "FULL")):
            yield _BACKWARD, _OF_THE_REGISTRY
        if self.startswith(("FORWARD", "FULL")):
            yield _FORWARD, _OF_THE_REGISTRY


_MODULES: dict[SchemaType, str] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


def parse(schema_type: SchemaType, text: str) -> Any:  # noqa: ANN401  each type has its own form
    """A schema, parsed. Raises SchemaUnusable. Loads the libraries of its type, which are in the extra `registry`."""
    try:
        return _module(schema_type).parse(text)
    except RecursionError:
        raise SchemaUnusable("it is nested too deeply") from None


def violations(schema_type: SchemaType, old: str, new: str, level: Level) -> list[Violation]:
    """Each change from `old` to `new` that `level` does not allow, in the order of the schema.

    Raises SchemaUnusable if one of them cannot be used.
    """
    schemas = {"old": parse(schema_type, old), "new": parse(schema_type, new)}
    compare = _module(schema_type).compare
    found: list[Finding] = []
    for sides, weights in level.counted():
        try:
            all_found: Iterable[Finding] = list(compare(schemas[sides.writer], schemas[sides.reader], sides))
        except RecursionError:
            raise SchemaUnusable("it is nested too deeply") from None
        places = {finding.place for finding in found}
        found += [each for each in all_found if each.weight in weights and each.place not in places]
    return list(dict.fromkeys(Violation(finding.place, finding.text) for finding in found))


def _module(schema_type: SchemaType) -> Any:  # noqa: ANN401  a module
    return import_module(f"support.compatibility.{_MODULES[schema_type]}")
