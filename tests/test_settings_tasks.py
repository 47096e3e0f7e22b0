"""The settings of tasks: tables of a TOML file, one JSON object in the environment, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enricher.errors import ModelError, SettingsError
from enricher.worker.build.loaded_tasks import plan_tasks
from enricher.worker.heads import KINDS
from enricher.worker.settings import TaskSettings, load_settings
from tools.head_references.folders import REFERENCE, HeadName, write_folder


def mistake() -> str:
    """What loading the settings complains of."""
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return str(caught.value)


*_OTHERS, _LAST = map(repr, KINDS)
KINDS_IN_WORDS = f"{', '.join(_OTHERS)} or {_LAST}"


def in_environment(monkeypatch: pytest.MonkeyPatch, tasks: object) -> None:
    """Set `ENRICHER_TASKS`."""
    monkeypatch.setenv("ENRICHER_TASKS", json.dumps(tasks))


def test_there_are_no_tasks_by_default() -> None:
    """The worker then finds entities by `model.source`."""
    assert {} == load_settings().tasks


def test_without_tasks_there_is_one_by_the_settings_of_model_and_batching(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a task that says the same is, except that the settings do not name it."""
    source = str(REFERENCE / "bert")
    monkeypatch.setenv("ENRICHER_BATCHING__MAX_WINDOW_TOKENS", "96")
    in_environment(monkeypatch, {"ner": {"source": source, "precision": "fp32"}})
    said = plan_tasks(load_settings())
    monkeypatch.delenv("ENRICHER_TASKS")
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", source)
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    derived = plan_tasks(load_settings())
    assert (True, False) == (said.named, derived.named)
    assert (said.tasks, said.grouping) == (derived.tasks, derived.grouping)
    assert [(96, 40)] == [each.windows for each in said.requests] == [each.windows for each in derived.requests]


def test_a_model_that_finds_no_entities_needs_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever named it in `model.source` is told where it belongs."""
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(write_folder("bert", "single", tmp_path / "model")))
    with pytest.raises(
        ModelError, match=r"classification, and token classification \(ner\) is needed .* name this one in"
    ):
        plan_tasks(load_settings())


def test_tasks_are_tables_of_the_toml_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the file; the environment changes the fields that it names, and adds tasks."""
    toml = '[tasks.b-1]\nsource = "/b"\nlanguages = ["en", "de-CH"]\ndefault = true\n[tasks.a_2]\nsource = "/a"\n'
    Path("enricher.toml").write_text(toml, "utf-8")
    tasks = load_settings().tasks
    assert ["b-1", "a_2"] == [*tasks]
    assert TaskSettings(source="/b", languages=("en", "de-CH"), default=True) == tasks["b-1"]
    in_environment(monkeypatch, {"a_2": {"threshold": 0.25}, "new": {"source": "/c"}})
    tasks = load_settings().tasks
    assert TaskSettings(source="/a", threshold=0.25) == tasks["a_2"]
    assert {"b-1", "a_2", "new"} == tasks.keys()


def test_dotenv_may_contain_tasks() -> None:
    """As every other variable."""
    Path(".env").write_text('ENRICHER_TASKS=\'{"topic": {"source": "/t"}}\'\n', "utf-8")
    assert {"topic": TaskSettings(source="/t")} == load_settings().tasks


def test_two_tasks_may_find_entities_in_the_same_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of their entities then names its task."""
    in_environment(
        monkeypatch, {"a": {"source": "/a", "languages": ["en"]}, "b": {"source": "/b", "languages": ["en"]}}
    )
    assert 2 == len(load_settings().tasks)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({}, "a.source: Field required"),
        ({"source": "/a", "treshold": 0.5}, "a.treshold: no such setting (see"),
        ({"source": "/a", "threshold": 1}, "a.threshold: a threshold is above 0 and below 1"),
        ({"source": "/a", "kind": "translation"}, f"a.kind: Input should be {KINDS_IN_WORDS}"),
        ({"source": "/a", "languages": []}, "a.languages: Tuple should have at least 1 item"),
        ({"source": "/a", "languages": ["e n"]}, "a.languages: String should match pattern"),
        ({"source": "/a", "default": True}, "a: `default` says nothing without `languages`"),
        ({"source": "/a", "max_window_tokens": 4}, "a.max_window_tokens: Input should be greater than or equal to 8"),
        (3, "a: Input should be a valid dictionary"),
    ],
    ids=str,
)
def test_a_mistake_names_task_and_field(monkeypatch: pytest.MonkeyPatch, task: object, said: str) -> None:
    """And the source: the variable, or the file and the name there."""
    in_environment(monkeypatch, {"a": task})
    assert f"ENRICHER_TASKS: {said}" in mistake()
    if isinstance(task, dict):
        monkeypatch.delenv("ENRICHER_TASKS")
        fields = "".join(f"{name} = {json.dumps(value)}\n" for name, value in task.items())
        Path("enricher.toml").write_text(f"[tasks.a]\n{fields}", "utf-8")
        assert f"enricher.toml: tasks.{said}" in mistake()


def test_a_mistake_names_both_places_where_tasks_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable changes the fields that it names, so the wrong one may stand in either."""
    Path("enricher.toml").write_text('[tasks.a]\nsource = "/a"\nthreshold = 2\n', "utf-8")
    in_environment(monkeypatch, {"a": {"default": False}})
    either = "ENRICHER_TASKS: a.threshold or enricher.toml: tasks.a.threshold"
    assert f"{either}: a threshold is above 0 and below 1" == mistake()


@pytest.mark.parametrize("name", ["Topic", "my topic", "", "-a", "tópico", "a" * 41, "a.b", "a\n"])
def test_names_are_short_and_plain(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They stand in records and labels of metrics."""
    in_environment(monkeypatch, {name: {"source": "/a"}})
    assert f"ENRICHER_TASKS: {name}.[key]: String should match pattern" in mistake()
    in_environment(monkeypatch, {"a" * 40: {"source": "/a"}, "0-_": {"source": "/a"}})
    assert 2 == len(load_settings().tasks)


@pytest.mark.parametrize("value", ['{"a": {"source": "/a"}', "a", ""])
def test_malformed_json_is_told(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """By the name of the variable, with the position."""
    monkeypatch.setenv("ENRICHER_TASKS", value)
    assert mistake().startswith("ENRICHER_TASKS: not JSON: ")


def test_tasks_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a list nor a variable for each task, and not a number in the file."""
    in_environment(monkeypatch, [{"source": "/a"}])
    assert "ENRICHER_TASKS: Input should be a valid dictionary" in mistake()
    monkeypatch.delenv("ENRICHER_TASKS")
    monkeypatch.setenv("ENRICHER_TASKS__A", '{"source": "/a"}')
    assert mistake().startswith("ENRICHER_TASKS__A: no such setting")
    monkeypatch.delenv("ENRICHER_TASKS__A")
    Path("enricher.toml").write_text("tasks = 3\n", "utf-8")
    assert "enricher.toml: tasks: Input should be a valid dictionary" in mistake()


@pytest.mark.parametrize(("field", "value"), [("source", "newswire-e5"), ("precision", "fp32")])
def test_settings_without_effect_beside_tasks_are_refused(
    monkeypatch: pytest.MonkeyPatch, field: str, value: str
) -> None:
    """With what to do instead."""
    monkeypatch.setenv(f"ENRICHER_MODEL__{field.upper()}", value)
    assert value == getattr(load_settings().model, field)
    in_environment(monkeypatch, {"a": {"source": "/a"}})
    assert f"model.{field} has no effect beside tasks" in mistake()
    assert f"[tasks.NAME] {field} = ..." in mistake()


@pytest.mark.parametrize(
    ("head", "setting", "value", "useful"),
    [
        ("single", "pooling", "max", True),
        ("multi", "threshold", 0.3, True),
        ("mean", "vector", "float16", True),
        ("mean", "pooling", "max", True),
        (None, "pooling", "mean", True),
        (None, "pooling", "max", False),
        (None, "threshold", 0.3, True),
        (None, "threshold", {"PER": 0.3}, True),
        ("single", "threshold", 0.3, False),
        ("single", "vector", "float16", False),
        ("mean", "threshold", 0.3, False),
        ("multi", "max_window_tokens", 160, True),
        ("multi", "max_window_tokens", 161, False),
    ],
)
def test_settings_without_effect_on_what_the_checkpoint_finds_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, head: HeadName | None, setting: str, value: object, *, useful: bool
) -> None:
    """Before anything is loaded, by their names; a default does no harm."""
    folder = write_folder("bert", head, tmp_path / "model") if head else REFERENCE / "bert"
    in_environment(monkeypatch, {"a": {"source": str(folder), setting: value}})
    if useful:
        assert ["a"] == plan_tasks(load_settings()).names
    else:
        with pytest.raises(
            SettingsError, match=rf"tasks\.a\.{setting} (has no effect|is 161, but .* takes 160 at most)"
        ):
            plan_tasks(load_settings())


def test_a_threshold_for_a_label_that_the_model_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have no effect; the names are those of records, without the prefixes of the model's."""
    in_environment(monkeypatch, {"a": {"source": str(REFERENCE / "bert"), "threshold": {"PER": 0.3, "B-PER": 0.3}}})
    with pytest.raises(SettingsError, match=r"tasks\.a\.threshold names B-PER, but the labels of .* are .*PER"):
        plan_tasks(load_settings())


def test_a_threshold_may_be_a_table_of_the_toml_file() -> None:
    """One for each label, within the same bounds."""
    Path("enricher.toml").write_text('[tasks.a]\nsource = "/a"\n[tasks.a.threshold]\nPER = 0.9\n', "utf-8")
    assert {"PER": 0.9} == load_settings().tasks["a"].threshold
    Path("enricher.toml").write_text('[tasks.a]\nsource = "/a"\n[tasks.a.threshold]\nPER = 0\n', "utf-8")
    assert "enricher.toml: tasks.a.threshold: a threshold is above 0 and below 1" == mistake()
