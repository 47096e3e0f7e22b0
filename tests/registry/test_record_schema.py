"""`RecordSchema`: how the worker finds the id of its own schema at the start."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from enricher.codec import record_writer
from enricher.codec.schemas import Schema
from enricher.errors import BrokerError, TransactionTrouble
from enricher.registry.errors import RefusedByRegistry, RegistryError, RegistryUnavailable
from enricher.registry.record_schema import RecordSchema

SCHEMA = record_writer("avro").schema or Schema("AVRO", "")


@dataclass
class FakeSubjects:
    """A registry with subjects that can be away, or refuse. Schemas are compared by type and text."""

    ids: dict[tuple[str, Schema], int] = field(default_factory=dict)
    away: bool = False
    refusal: RegistryError | None = None

    def subject_id(self, subject: str, schema: Schema) -> int | None:
        """Find a schema of a subject."""
        if self.away:
            raise TransactionTrouble("the registry is away")
        return self.ids.get((subject, schema))

    def register(self, subject: str, schema: Schema) -> int:
        """Add a schema to a subject."""
        if self.refusal:
            raise self.refusal
        return self.ids.setdefault((subject, schema), 70_000 + len(self.ids))


def test_a_registered_schema_has_the_id_of_the_registry() -> None:
    """Nothing is registered then, even if the setting allows it."""
    subjects = FakeSubjects({("s", SCHEMA): 7}, refusal=RefusedByRegistry("no", 409, 409))
    assert 7 == RecordSchema("s", SCHEMA, subjects, auto_register=True).find_id()


def test_without_the_registry_it_is_tried_again() -> None:
    """As for a broker that is away: the error is one after which the start is repeated, and then it succeeds."""
    subjects = FakeSubjects({("s", SCHEMA): 7}, away=True)
    schema = RecordSchema("s", SCHEMA, subjects)
    with pytest.raises(TransactionTrouble, match="away"):
        schema.find_id()
    subjects.away = False
    assert 7 == schema.find_id()


def test_a_schema_that_is_not_registered_ends_the_worker_and_says_what_to_do() -> None:
    """Another schema of the subject is another schema; nothing is registered."""
    older = Schema("AVRO", '"string"')
    subjects = FakeSubjects({("s", older): 3})
    with pytest.raises(BrokerError, match=r"AVRO.*'s'.*enricher schemas register.*registry\.auto_register") as error:
        RecordSchema("s", SCHEMA, subjects).find_id()
    assert 4 == error.value.exit_code
    assert {("s", older): 3} == subjects.ids


def test_it_is_registered_if_the_setting_says_so() -> None:
    """A second worker finds it."""
    subjects = FakeSubjects()
    first = RecordSchema("s", SCHEMA, subjects, auto_register=True)
    assert [70_000, 70_000] == [first.find_id(), RecordSchema("s", SCHEMA, subjects).find_id()]


def test_a_registry_that_goes_away_while_it_is_asked_to_register_is_tried_again() -> None:
    """To register twice gives the same id, so it does not matter whether the first try came through."""
    subjects = FakeSubjects(refusal=RegistryUnavailable("http://registry:8081 does not answer"))
    with pytest.raises(TransactionTrouble, match="registry:8081"):
        RecordSchema("s", SCHEMA, subjects, auto_register=True).find_id()


def test_a_schema_that_the_registry_refuses_ends_the_worker() -> None:
    """An incompatible one, for instance: waiting would not help."""
    subjects = FakeSubjects(refusal=RefusedByRegistry("Schema being registered is incompatible", 409, 409))
    with pytest.raises(BrokerError, match=r"refuses the schema of records, subject 's': .*incompatible"):
        RecordSchema("s", SCHEMA, subjects, auto_register=True).find_id()
