"""Today's schemas against the released ones: what was promised to publishers and consumers holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from support.compatibility import Level, SchemaUnusable, parse, promised_level, type_of, violations

from enricher.worker.contracts import record_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
RELEASED = sorted(path for path in (SCHEMAS / "released").glob("*/*") if path.is_file())
ACCEPTED = {
    ("before-0.1.0", f"enriched-record-headers.v{version}.schema.json"): {
        "/properties/content-type/const": "decided before the first release: others come only if an operator asks"
    }
    for version in (1, 2)
} | {
    ("before-0.1.0", "article.v1.schema.json"): {
        f"/properties/{name}/maxLength": "decided before the first release: far above what any publisher writes"
        for name in ("title", "language", "source", "url", "published_at")
    }
}
"""Violations that were decided on, with the reason, by release and file. Nobody depends on an unreleased format."""


def named(path: Path) -> str:
    """A released file by its release."""
    return f"{path.parent.name}/{path.name}"


def broken(released: Path) -> dict[str, str]:
    """What today's schema of this name does to the released one: place and sentence."""
    old, new = released.read_text("utf-8"), (SCHEMAS / released.name).read_text("utf-8")
    found = violations(type_of(released.name, old), old, new, promised_level(old))
    return {each.place: each.text for each in found}


def test_there_are_released_schemas() -> None:
    """Guards the tests below against a folder that moved."""
    assert {"article.v1.schema.json", "enriched-record.v1.schema.json"} <= {path.name for path in RELEASED}


@pytest.mark.parametrize("released", RELEASED, ids=named)
def test_todays_schemas_keep_what_was_released(released: Path) -> None:
    """Optional fields may come. Everything else needs a new version, which is a file with another name."""
    assert (SCHEMAS / released.name).exists(), f"{released.name} was released and is gone"
    accepted = ACCEPTED.get((released.parent.name, released.name), {})
    assert accepted.keys() == broken(released).keys(), broken(released)


@pytest.mark.parametrize(
    "current", [path for path in sorted(SCHEMAS.glob("*.*")) if path.suffix != ".md"], ids=lambda path: path.name
)
def test_every_schema_can_be_compared(current: Path) -> None:
    """The comparison knows every keyword, or says that it does not; and nothing differs from itself."""
    text = current.read_text("utf-8")
    parse(type_of(current.name, text), text)
    assert [] == violations(type_of(current.name, text), text, text, Level.FULL)


@pytest.mark.parametrize("released", [path for path in RELEASED if path.suffix == ".json"], ids=named)
def test_a_breaking_change_would_be_seen(released: Path) -> None:
    """The negative control: another type of any one property, in each of the released files."""
    schema = json.loads(released.read_text("utf-8"))
    missed = []
    for name in schema["properties"]:
        changed = json.loads(json.dumps(schema))
        changed["properties"][name] = {"type": "boolean"}
        if not violations("JSON", json.dumps(schema), json.dumps(changed), promised_level(json.dumps(schema))):
            missed.append(name)
    assert [] == missed


def test_a_schema_that_is_no_schema_is_not_compatible_with_anything() -> None:
    """A file that was cut off fails the check, too."""
    with pytest.raises(SchemaUnusable, match="not JSON"):
        parse("JSON", (SCHEMAS / "article.v1.schema.json").read_text("utf-8")[:-10])


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
