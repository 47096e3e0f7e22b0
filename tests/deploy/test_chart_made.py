"""The generated files of the chart are up to date, and the schema accepts and refuses what it should. Needs no Helm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from deploy.chart_rendering import CI_FILES, values_of

from deploy.chart.generator.comments import undescribed
from deploy.chart.generator.layout import CHART, ROOT, SCHEMA, VALUES
from deploy.chart.generator.making import stale
from deploy.chart.generator.schema import FOLLOWS, defaults, groups, open_fields
from enricher.worker.settings import Settings

VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))


def problems(values: object) -> list[str]:
    """The schema's errors for these values."""
    return [error.message for error in VALIDATOR.iter_errors(values)]


def with_setting(group: str, field: str, value: object) -> dict[str, Any]:
    """Values that set one setting."""
    return {"settings": {group: {field: value}}}


@pytest.mark.slow
def test_nothing_is_stale() -> None:
    """Schema and defaults are what `scripts/chart` would write now."""
    assert [str(path.relative_to(ROOT)) for path in stale()] == []


@pytest.mark.parametrize("path", [VALUES, *CI_FILES], ids=lambda path: path.stem)
def test_the_charts_own_values_and_those_of_each_option_are_valid(path: Path) -> None:
    """The other tests render them."""
    assert problems(values_of(path)) == []


def test_every_value_is_described() -> None:
    """The table of values has no holes."""
    assert undescribed(VALUES.read_text("utf-8")) == []


def test_schema_and_values_have_the_same_names() -> None:
    """Otherwise a value could be set without effect, or exist and be refused."""
    own = {name for name in json.loads(SCHEMA.read_text("utf-8"))["properties"] if name != "global"}
    assert own == set(values_of(VALUES))


def test_every_group_of_settings_can_be_set() -> None:
    """Except groups whose settings all follow from other values."""
    assert {name for name in groups() if open_fields(name)} | {"tasks"} == set(values_of(VALUES)["settings"])


def test_the_defaults_of_the_settings_are_accepted_as_values() -> None:
    """The schema accepts every setting with its default."""
    found = defaults()
    assert {*Settings.model_fields} - {"tasks"} == found.keys()
    for group, values in found.items():
        assert problems({"settings": {group: values} if open_fields(group) else {}}) == [], group


@pytest.mark.parametrize(("group", "field"), [(group, field) for group in FOLLOWS for field in FOLLOWS[group]])
def test_what_follows_from_something_else_cannot_be_set(group: str, field: str) -> None:
    """Pod name, device and folders could contradict each other if they were set twice."""
    assert field in groups()[group].model_fields, "there is such a setting"
    assert problems(with_setting(group, field, "x")) != []


@pytest.mark.parametrize(
    "name",
    [
        *("ssl.key.password", "ssl.key.pem", "producer.sasl.password", "sasl.oauthbearer.client.secret"),
        *("sasl.oauthbearer.config", "sasl.oauthbearer.assertion.private.key.passphrase"),
    ],
)
def test_a_secret_is_refused_as_a_value(name: str) -> None:
    """It would be readable in the pod and in the release. A file is accepted, and what is no secret is written as it is."""
    assert problems(with_setting("kafka", "properties", {name: "canary"})) != []
    assert problems(with_setting("kafka", "properties", {name: {"file": "/run/secrets/x/y"}})) == []
    plain = ("client.rack", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url")
    assert problems(with_setting("kafka", "properties", dict.fromkeys(plain, "x"))) == []


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 1},
        {"settings": {"kafka": {"group": "x"}}},
        {"settings": {"batching": {"bucket_edges": [32, "64"]}}},
        {"settings": {"model": {"precision": "fp8"}}},
        {"settings": {"tasks": {"Topic": {"source": "/model/topic"}}}},
        {"gpu": {"tolerations": [{"key": "a", "operater": "Exists"}]}},
        {"kafka": {"sasl": {"password": "canary"}}},
        {"security": {"runAsUser": 0}},
        {"probes": {"liveness": {"path": "/"}}},
    ],
    ids=json.dumps,
)
def test_a_misspelt_or_impossible_value_is_refused(values: dict[str, Any]) -> None:
    """It is refused before anything reaches a cluster."""
    assert problems(values) != []


def test_no_file_of_values_is_left_out() -> None:
    """Every file in `ci/` has a name that the tests find."""
    assert {path.name for path in (CHART / "ci").iterdir()} == {path.name for path in CI_FILES}
    assert len(CI_FILES) >= 15
