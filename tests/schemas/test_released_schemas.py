"""Today's schemas against the released ones: what was promised to publishers and consumers holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from support.offenders import assert_none
from support.schema_changes import FILES, changes, contract, without_url
from support.schema_promise import broken_promises, type_of

from enricher.worker.contracts import SchemaType, record_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
RELEASED = sorted(path for path in (SCHEMAS / "released").glob("*/*") if path.is_file())
_BODY = "an array of paragraphs was accepted, too: a text still is"
_TIMES = "times as numbers were accepted, too: a text still is"
_ON_REQUEST = "other content types, and headers of events, come only if an operator asks for them"
ACCEPTED = {
    ("before-0.1.0", f"enriched-record-headers.v{version}.schema.json"): dict.fromkeys(
        ("/properties/content-type/const", "/properties/content-type/enum", "/dependentRequired"), _ON_REQUEST
    )
    for version in (1, 2)
} | {
    ("before-0.1.0", "article.v1.schema.json"): {
        f"/properties/{name}/maxLength": "far above what any publisher writes"
        for name in ("title", "language", "source", "url", "published_at")
    }
    | dict.fromkeys(("/properties/body/type", "/properties/body/items", "/anyOf"), _BODY)
    | dict.fromkeys([f"/properties/published_at/{each}" for each in ("type", "minimum", "maximum")], _TIMES)
}
"""Differences that were decided on, with the reason, by release and file. Nobody depends on an unreleased format."""


def broken(released: Path) -> dict[str, str]:
    """What today's schema of this name does to the released one: place and sentence."""
    today = SCHEMAS / released.name
    assert today.exists(), f"{released.name} was released and is gone"
    return broken_promises(type_of(released.name), released.read_text("utf-8"), today.read_text("utf-8"))


def test_todays_schemas_keep_what_was_released() -> None:
    """Optional fields may come. Everything else needs a new version, which is a file with another name."""
    assert {"article.v1.schema.json", "enriched-record.v1.schema.json"} <= {path.name for path in RELEASED}
    for path in RELEASED:
        found, accepted = broken(path), ACCEPTED.get((path.parent.name, path.name), {})
        assert accepted.keys() == found.keys(), (path.name, found)


@pytest.mark.slow
@pytest.mark.parametrize("schema_type", FILES)
def test_the_promise_tells_allowed_changes_from_breaking_ones(schema_type: SchemaType) -> None:
    """Green on what version 1 may gain, red on what would need version 2, six of each."""
    old, found = contract(schema_type), changes(schema_type)
    assert [True] * 6 + [False] * 6 == [change.allowed for change in found]
    assert 13 == len({old, *(change.text for change in found)})
    verdicts = {change: broken_promises(schema_type, old, change.text) for change in found}
    assert_none(f"{change}: {broken}" for change, broken in verdicts.items() if change.allowed is not (broken == {}))


@pytest.mark.parametrize("schema_type", ["AVRO", "PROTOBUF"])
def test_a_removed_optional_field_breaks_the_promise(schema_type: SchemaType) -> None:
    """Consumers that read `url` would find it absent for ever. The changes above have the like for a JSON Schema."""
    found = broken_promises(schema_type, contract(schema_type), without_url(schema_type))
    assert ["is gone"] == [text for place, text in found.items() if place.endswith("/url")], found


def test_a_breaking_change_would_be_seen() -> None:
    """The negative control: another type of any one property, in each of the released files."""
    missed = []
    for path in RELEASED:
        schema = json.loads(path.read_text("utf-8"))
        for name in schema["properties"]:
            changed = json.loads(json.dumps(schema))
            changed["properties"][name] = {"type": "boolean"}
            if not broken_promises("JSON", json.dumps(schema), json.dumps(changed)):
                missed.append(f"{path.name}: {name}")
    assert_none(missed)


def test_an_article_gains_no_typed_field() -> None:
    """Every article that was accepted is accepted, whatever publishers have sent under a name that has come since."""
    schema = json.loads((SCHEMAS / "article.v1.schema.json").read_text("utf-8"))
    later = schema | {"properties": schema["properties"] | {"later": {"type": "string"}}}
    assert {"/properties/later": "is new"} == broken_promises("JSON", json.dumps(schema), json.dumps(later))


def test_the_schema_that_is_registered_accepts_what_the_contract_accepts() -> None:
    """It is the same schema as draft 7, without its `$id`: shown on every valid and invalid example."""
    contract = Draft202012Validator(json.loads((SCHEMAS / "enriched-record.v1.schema.json").read_text("utf-8")))
    registered = Draft7Validator(json.loads(record_schema("JSON")))
    Draft7Validator.check_schema(json.loads(record_schema("JSON")))
    examples = sorted((SCHEMAS / "examples" / "enriched-record.v1").rglob("*.json"))
    verdicts = {path.parent.name for path in examples}
    assert {"valid", "invalid"} == verdicts
    for path in examples:
        value = json.loads(path.read_text("utf-8"))
        assert (path.parent.name == "valid") is contract.is_valid(value) is registered.is_valid(value), path.name
    differing = {"$schema", "$id"}
    assert {k: v for k, v in contract.schema.items() if k not in differing} == {
        k: v for k, v in registered.schema.items() if k not in differing
    }
