"""Which changes of a schema are compatible, without asking a registry: JSON Schema, Avro and Protobuf.

Pure rules, no network. They follow those of Confluent's registry (its classes SchemaDiff, and Avro's schema resolution) and
never say yes to what a reader cannot read: where a keyword is too rare to be worth a rule, a change of it counts as
incompatible. `promises` adds what our own formats promise beyond any registry.
"""

from enricher.worker.contracts import SchemaType
from support.compatibility.findings import SchemaUnusable, Violation
from support.compatibility.levels import Level, parse, violations
from support.compatibility.promises import promised_level
from support.compatibility.types import type_of

__all__ = [
    "Level",
    "SchemaType",
    "SchemaUnusable",
    "Violation",
    "parse",
    "promised_level",
    "type_of",
    "violations",
]
