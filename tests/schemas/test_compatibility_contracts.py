"""The promise in each format: optional fields may come, and what breaks consumers is refused, by us and by a registry."""

from __future__ import annotations

import pytest
from support.compatibility import Level, SchemaType, promised_level, violations
from support.schema_changes import FILES, Change, all_changes, changes, contract, without_url

from enricher.worker.registry.levels import recommended_level


@pytest.mark.parametrize("schema_type", FILES)
def test_there_are_six_changes_of_each_kind(schema_type: SchemaType) -> None:
    """Guards the tests below against a list that lost its entries, or names that say the same."""
    found = changes(schema_type)
    assert [True] * 6 + [False] * 6 == [change.allowed for change in found]
    assert 13 == len({contract(schema_type), *(change.text for change in found)})


@pytest.mark.parametrize("change", all_changes(), ids=str)
def test_the_promise_tells_allowed_changes_from_breaking_ones(change: Change) -> None:
    """Green on what version 1 may gain, red on what would need version 2."""
    found = violations(change.schema_type, contract(change.schema_type), change.text, Level.PROMISE)
    assert change.allowed is (found == []), found


@pytest.mark.parametrize("change", all_changes(), ids=str)
def test_the_level_that_we_recommend_tells_them_apart_too(change: Change) -> None:
    """A registry at this level keeps our promise: it accepts every allowed change and refuses the breaking ones."""
    level = Level(recommended_level(change.schema_type))
    found = violations(change.schema_type, contract(change.schema_type), change.text, level)
    assert change.allowed is (found == []), found


@pytest.mark.parametrize("level", [Level.BACKWARD, Level.FULL])
def test_a_registry_at_its_default_level_refuses_a_new_property_of_a_json_schema(level: Level) -> None:
    """The trap: an open content model, in which older documents may have used the name for something else."""
    change = changes("JSON")[0]
    found = violations("JSON", contract("JSON"), change.text, level)
    assert [
        "/properties/later: only the new schema knows it, and the old one allows any value under this name"
    ] == list(map(str, found))


@pytest.mark.parametrize("level", [Level.FORWARD, Level.FULL])
def test_a_registry_that_looks_forward_refuses_a_new_message(level: Level) -> None:
    """Why the level for Protobuf is another one than for Avro."""
    change = next(each for each in changes("PROTOBUF") if each.name == "a new message")
    found = violations("PROTOBUF", contract("PROTOBUF"), change.text, level)
    assert ["/Later: the old schema has no such message"] == list(map(str, found))


@pytest.mark.parametrize("change", [each for each in all_changes() if not each.allowed], ids=str)
def test_without_a_level_everything_is_allowed(change: Change) -> None:
    """NONE is a registry's own word for it."""
    assert [] == violations(change.schema_type, contract(change.schema_type), change.text, Level.NONE)


@pytest.mark.parametrize("schema_type", ["AVRO", "PROTOBUF"])
def test_a_removed_optional_field_breaks_the_promise_although_a_registry_accepts_it(schema_type: SchemaType) -> None:
    """Consumers that read `url` would find it absent for ever. The changes above have the like for a JSON Schema."""
    text, changed = contract(schema_type), without_url(schema_type)
    found = violations(schema_type, text, changed, Level.PROMISE)
    assert [True] == [str(each).endswith("/url: the new schema has no such field") for each in found], found
    assert [] == violations(schema_type, text, changed, Level(recommended_level(schema_type)))


def test_articles_promise_what_their_publishers_need() -> None:
    """Workers read what publishers wrote: every article that was accepted is accepted."""
    assert Level.BACKWARD_TRANSITIVE == promised_level('{"$id": "urn:enricher:schema:article:1"}')
    assert Level.PROMISE == promised_level('{"$id": "urn:enricher:schema:enriched-record:1"}')
