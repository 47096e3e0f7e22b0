"""`writer_of` and `check_record_schema`: settings to the writer of records and its schema id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enricher.app import record_schema
from enricher.app.record_schema import check_record_schema, writer_of
from enricher.codec.schemas import Schema
from enricher.errors import BrokerError, TransactionTrouble
from enricher.settings import OutputSettings, RegistrySettings, Settings

Answer = Callable[[str, Schema], int | None]


def settings(**output: str) -> Settings:
    """Settings of a worker that writes Avro."""
    return Settings(
        output=OutputSettings(format="avro", **output),
        registry=RegistrySettings(url="http://127.0.0.1:1"),
    )


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[tuple[str, str]]]:
    """Replace the registry by a function; returns what is asked."""

    def replace(answer: Answer) -> list[tuple[str, str]]:
        asked: list[tuple[str, str]] = []

        class Subjects:
            """A registry."""

            def subject_id(self, subject: str, schema: Schema) -> int | None:
                """Answer."""
                asked.append((subject, schema.type))
                return answer(subject, schema)

            def register(self, _subject: str, _schema: Schema) -> int:
                """Never register unasked."""
                raise AssertionError("nobody asked for that")

        monkeypatch.setattr("enricher.app.registry.subject_ids", lambda _settings: Subjects())
        return asked

    return replace


def test_plain_json_asks_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not even load what would."""
    monkeypatch.setitem(__import__("sys").modules, "enricher.app.registry", None)
    writer, prepare = writer_of(Settings())
    prepare()
    assert (True, None) == (writer.ready, writer.schema)


@pytest.mark.parametrize(
    ("output", "name"),
    [({}, f"{Settings().kafka.output_topic}-value"), ({"subject": "s"}, "s")],
    ids=["default", "set"],
)
def test_the_id_is_asked_for_once(
    answers: Callable[[Answer], list[tuple[str, str]]], output: dict[str, str], name: str
) -> None:
    """Under the subject of the settings; by default it is that of the output topic."""
    asked = answers(lambda _subject, _schema: 7)
    writer, prepare = writer_of(settings(**output))
    prepare()
    prepare()
    assert writer.ready
    assert [(name, "AVRO")] == asked


def test_a_registry_that_is_away_is_asked_again(answers: Callable[[Answer], list[tuple[str, str]]]) -> None:
    """Each attempt of the start calls it; the check before the model is loaded does not end the process."""
    ids = iter([None, None, 7])

    def answer(_subject: str, _schema: Schema) -> int:
        if (schema_id := next(ids)) is None:
            raise TransactionTrouble("away")
        return schema_id

    answers(answer)
    check_record_schema(settings())
    writer, prepare = writer_of(settings())
    with pytest.raises(TransactionTrouble):
        prepare()
    assert not writer.ready
    prepare()
    assert writer.ready


def test_a_schema_that_is_not_registered_is_found_before_the_model_is_loaded(
    answers: Callable[[Answer], list[tuple[str, str]]],
) -> None:
    """With the command that registers it."""
    answers(lambda _subject, _schema: None)
    with pytest.raises(BrokerError, match="enricher schemas register"):
        check_record_schema(settings())
    assert record_schema.subject_of(settings()).endswith("-value")
