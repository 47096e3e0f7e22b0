"""The settings of tasks: tables of a TOML file, one JSON object in the environment, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.head_references import REFERENCE, HeadName, write_folder

from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.run.advice import ADVICE_FILE
from enricher.worker.settings import BatchingSettings, Settings, TaskSettings, load_settings
from enricher.worker.wiring.loaded_tasks import load_tasks, plan_tasks, with_windows


def mistake() -> str:
    """What loading the settings complains of."""
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return str(caught.value)


def in_environment(monkeypatch: pytest.MonkeyPatch, tasks: object) -> None:
    """Set `ENRICHER_TASKS`."""
    monkeypatch.setenv("ENRICHER_TASKS", json.dumps(tasks))


def test_without_tasks_there_is_one_by_the_settings_of_model_and_batching(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a task that says the same is, except that the settings do not name it."""
    source = str(REFERENCE / "bert")
    monkeypatch.setenv("ENRICHER_BATCHING__MAX_WINDOW_TOKENS", "96")
    in_environment(monkeypatch, {"ner": {"source": source}})
    said = plan_tasks(load_settings())
    monkeypatch.delenv("ENRICHER_TASKS")
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", source)
    derived = plan_tasks(load_settings())
    assert (True, False) == (said.named, derived.named)
    assert (said.tasks, said.checkpoints) == (derived.tasks, derived.checkpoints)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Folders of two tasks, `a` and `b`, on one encoder."""
    folders = [write_folder("bert", "single", tmp_path / "a"), write_folder("bert", "mean", tmp_path / "b")]
    in_environment(monkeypatch, {each.name: {"source": str(each)} for each in folders})
    return folders


def test_tasks_on_two_encoders_are_refused(shared: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is loaded, with both models, what differs and what to do; on one encoder they are not."""
    plan_tasks(load_settings()).require_one_encoder()
    in_environment(monkeypatch, {"a": {"source": str(shared[0])}, "other": {"source": str(REFERENCE / "electra")}})
    with pytest.raises(
        SettingsError, match=rf"^tasks\.other .*electra.* and tasks\.a \({shared[0]}\).* a second deployment"
    ):
        load_tasks(load_settings())


def test_models_that_ask_for_different_windows_are_refused(shared: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the settings decide. One that asks for none has those of the other."""
    advice = {"max_window_tokens": 64, "overlap_tokens": 8}
    (shared[1] / ADVICE_FILE).write_text(json.dumps(advice))
    assert 64 == window_settings(load_settings()).max_window_tokens
    (shared[0] / ADVICE_FILE).write_text(json.dumps(advice | {"max_window_tokens": 96}))
    with pytest.raises(SettingsError, match=r"a asks for 96 .*b asks for 64 .* Set batching\.max_window_tokens"):
        window_settings(load_settings())
    monkeypatch.setenv("ENRICHER_BATCHING__MAX_WINDOW_TOKENS", "80")
    assert (80, 8) == (
        window_settings(load_settings()).max_window_tokens,
        window_settings(load_settings()).overlap_tokens,
    )


def window_settings(settings: Settings) -> BatchingSettings:
    """The settings of windows with which the tasks are loaded."""
    return with_windows(settings, plan_tasks(settings)).batching


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


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({}, "a.source: Field required"),
        ({"source": "/a", "treshold": 0.5}, "a.treshold: no such setting (see"),
        ({"source": "/a", "threshold": 1}, "a.threshold: a threshold is above 0 and below 1"),
        ({"source": "/a", "pooling": "last"}, "a.pooling: Input should be 'mean', 'first_window' or 'max'"),
        ({"source": "/a", "languages": ["e n"]}, "a.languages: String should match pattern"),
        ({"source": "/a", "default": True}, "a: `default` says nothing without `languages`"),
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


NOT_PLAIN = ("Topic", "", "-a", "tópico", "a" * 41, "a.b", "a\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((json.dumps({name: {"source": "/a"}}), f"{name}.[key]: String should match pattern") for name in NOT_PLAIN),
        ("a", "not JSON: "),
    ],
)
def test_tasks_are_one_object_by_short_and_plain_names(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    """The names stand in records and labels of metrics."""
    monkeypatch.setenv("ENRICHER_TASKS", text)
    assert f"ENRICHER_TASKS: {said}" in mistake()
    in_environment(monkeypatch, {"a" * 40: {"source": "/a"}, "0-_": {"source": "/a"}})
    assert 2 == len(load_settings().tasks)


def test_the_source_of_the_model_is_refused_beside_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do instead; its precision counts for all tasks."""
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    in_environment(monkeypatch, {"a": {"source": "/a"}})
    assert "fp32" == load_settings().model.precision
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", "newswire-e5")
    assert "model.source has no effect beside tasks" in mistake()
    assert "[tasks.NAME] source = ..." in mistake()


@pytest.mark.parametrize(
    ("head", "setting", "value", "useful"),
    [
        ("single", "pooling", "max", True),
        ("multi", "threshold", 0.3, True),
        ("mean", "vector", "float16", True),
        (None, "pooling", "mean", True),
        (None, "pooling", "max", False),
        (None, "threshold", {"PER": 0.3}, True),
        ("single", "threshold", 0.3, False),
        ("single", "vector", "float16", False),
        ("mean", "threshold", 0.3, False),
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
        with pytest.raises(SettingsError, match=rf"tasks\.a\.{setting} has no effect"):
            plan_tasks(load_settings())


def test_a_threshold_for_a_label_that_the_model_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have no effect; the names are those of records, without the prefixes of the model's."""
    in_environment(monkeypatch, {"a": {"source": str(REFERENCE / "bert"), "threshold": {"PER": 0.3, "B-PER": 0.3}}})
    with pytest.raises(SettingsError, match=r"tasks\.a\.threshold names B-PER, but the labels of .* are .*PER"):
        plan_tasks(load_settings())


def test_a_threshold_for_each_label_has_the_same_bounds() -> None:
    """In a table of the TOML file."""
    Path("enricher.toml").write_text('[tasks.a]\nsource = "/a"\n[tasks.a.threshold]\nPER = 0\n', "utf-8")
    assert "enricher.toml: tasks.a.threshold: a threshold is above 0 and below 1" == mistake()
