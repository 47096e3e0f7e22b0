"""`enricher model compare`: on files, on topics, and on live traffic."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from commands.cli_runner import article, run
from commands.model_app import run_model, tiny_model
from safetensors.numpy import load_file, save_file
from support.heads import class_model
from support.operating import admin_of, write
from support.patience import PATIENCE_S
from support.reading import committed_and_ends
from support.topics import QUICK_TO_START, Topics

from enricher.errors import FatalError, ModelError, SettingsError
from enricher.worker.inference.run.model import EMBEDDED
from enricher.workshop import compare
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of

CPU = {**QUICK_TO_START, "ENRICHER_MODEL__DEVICE": "cpu", "ENRICHER_MODEL__PRECISION": "fp32"}
TEXTS = tuple(each.text for each in read_gold(DEFAULT_GOLD).texts[:200])


def articles_file(path: Path, texts: Sequence[str]) -> Path:
    """An article for each text, every third without a language."""
    lines = [
        {"id": str(number), "body": text, **({"language": "en"} if number % 3 else {})}
        for number, text in enumerate(texts)
    ]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


def compared(*arguments: str | Path, cache_dir: Path) -> dict[str, Any]:
    """The object that --json prints."""
    result = run_model("compare", *arguments, "--json", cache_dir=cache_dir, env=CPU)
    assert result.exit_code in {0, 13}, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["verdict"] or {"passed": True})["passed"] == (result.exit_code == 0)
    return found


def row(found: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The row of a label."""
    return next(each for each in found["rows"] if each["label"] == label)


def test_what_is_lost_is_judged_by_its_limit(tmp_path: Path) -> None:
    """Changes are counted by label, with an interval; a model with more bias for no entity finds none."""
    tiny = tiny_model(tmp_path / "tiny")
    losing = shutil.copytree(tiny, tmp_path / "losing")
    weights = load_file(losing / "model.safetensors")
    labels = json.loads((losing / "config.json").read_bytes())["id2label"]
    bias = [9 if labels[str(number)] == "O" else 0 for number in range(len(labels))]
    save_file(
        {**weights, "classifier.bias": weights["classifier.bias"] + np.array(bias, np.float32)},
        losing / "model.safetensors",
    )
    articles = articles_file(tmp_path / "articles.jsonl", TEXTS[:20])
    limit = ("--max-lost", "0.02", "--examples")
    found = compared(tiny, losing, "--articles", articles, *limit, cache_dir=tmp_path / "cache")
    assert row(found, "all")["of_a"] == row(found, "all")["counts"]["lost"] > 0
    assert [1.0] * len(found["rows"]) == [each["shares"]["lost"]["value"] for each in found["rows"] if each["of_a"]]
    assert not found["verdict"]["passed"]
    assert "are lost, and 2 % may be" in found["verdict"]["reasons"][0]
    assert any(each["examples"]["lost"] for each in found["rows"] if each["examples"])


def test_a_model_changes_nothing_when_it_replaces_itself(tmp_path: Path) -> None:
    """No change of any kind, so the strictest limits hold; without --examples no text of an article is shown."""
    tiny = tiny_model(tmp_path / "tiny")
    articles = articles_file(tmp_path / "articles.jsonl", [*TEXTS[:10], "a b c " * 1_700, ""])
    arguments = ("--articles", articles, "--max-lost", "0", "--max-relabelled", "0")
    found = compared(tiny, tiny, *arguments, cache_dir=tmp_path / "cache")
    overall = row(found, "all")
    assert overall["of_a"] == overall["of_b"] > 0
    assert {"lost": 0, "gained": 0, "relabelled": 0, "moved": 0} == overall["counts"]
    assert 0 == found["changed_articles"]
    assert not any(each["examples"] for each in found["rows"])
    assert TEXTS[0][:20] not in json.dumps(found)


def test_without_an_answer_nothing_is_judged(tmp_path: Path) -> None:
    """Neither model has one for lines that are no articles: a remark without a limit, and a failure with one."""
    tiny, articles = tiny_model(tmp_path / "tiny"), tmp_path / "articles.jsonl"
    articles.write_bytes(b'{"id": 5}\n\xff\n' + b"[" * 9000 + b"\n")
    for limit in ((), ("--max-relabelled", "0.5")):
        found = compared(tiny, tiny, "--articles", articles, *limit, cache_dir=tmp_path / "cache")
        assert 0 == found["articles"]
        assert (found["verdict"] is None) == (not limit)
    assert "cannot be judged" in found["verdict"]["reasons"][0]
    assert any("Neither has an answer for 3 articles" in each for each in found["remarks"])


def test_labels_are_paired_by_name_and_others_are_named(tmp_path: Path) -> None:
    """In another case, or known to one model only; odd characters are shown as they are."""
    tiny = tiny_model(tmp_path / "tiny")
    labels = json.loads((tiny / "config.json").read_bytes())["id2label"]
    kinds = sorted({name[2:] for name in labels.values() if name != "O"})
    other = shutil.copytree(tiny, tmp_path / "other")
    config = json.loads((other / "config.json").read_bytes())
    names = {kinds[0]: kinds[0].lower(), kinds[1]: "x<b>&\u202e"}
    config["id2label"] = {
        number: name if name == "O" else name[:2] + names.get(name[2:], name[2:]) for number, name in labels.items()
    }
    (other / "config.json").write_text(json.dumps(config))
    articles = articles_file(tmp_path / "articles.jsonl", TEXTS[:10])
    found = compared(tiny, other, "--articles", articles, cache_dir=tmp_path / "cache")
    renamed, only_a, only_b = found["remarks"]
    assert f"{kinds[0]} for {kinds[0].lower()}" in renamed
    assert only_a.endswith(f"{kinds[1]}.")
    assert only_b.endswith("x<b>&\u202e.")
    assert {0} == {row(found, "all")["counts"][kind] for kind in ("lost", "gained", "moved")}


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """Before any model runs."""
    tiny, articles = tiny_model(tmp_path / "tiny"), articles_file(tmp_path / "articles.jsonl", TEXTS[:1])
    topics = class_model(tiny, tmp_path / "topics", ("x", "y"))
    empty = articles_file(tmp_path / "empty.jsonl", [])
    for arguments, error, message in (
        ((tiny, tiny), SettingsError, "name either --articles"),
        ((tiny, tiny, "--articles", articles, "--topic"), SettingsError, "name either --articles"),
        ((tiny, topics, "--articles", articles), SettingsError, "find different things"),
        ((tiny, tiny, "--articles", empty), SettingsError, "no articles"),
        ((tiny, tiny, "--articles", tmp_path / "none"), FatalError, "cannot open"),
        ((tiny, tmp_path, "--articles", articles), ModelError, "config.json"),
    ):
        result = run_model("compare", *arguments, cache_dir=tmp_path / "cache", env=CPU)
        with pytest.raises(error, match=message):
            raise result.exception or AssertionError(result.output)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models are the stub, which needs no time."""
    monkeypatch.setattr(compare, "load_tasks", lambda settings: tasks_of(settings, stub_model(StubEngine())))


@pytest.mark.broker
@pytest.mark.usefixtures("stub")
def test_the_newest_of_the_topic_are_compared_and_nothing_is_committed(topics: Topics) -> None:
    """All of a small topic, or as many as are asked for; an empty topic is an error.

    The group of the live workers has no offset and no member afterwards, and no topic has a record more.
    """
    servers = topics.bootstrap_servers

    def compared_topic(*arguments: str) -> dict[str, Any]:
        result = run("model", "compare", EMBEDDED, EMBEDDED, "--topic", *arguments, "--json", env=topics.environment)
        if result.exception and result.exit_code == 1:
            raise result.exception
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    with pytest.raises(SettingsError, match="no articles"):
        compared_topic()
    write(servers, topics.input, [{"value": orjson.dumps(article(str(n))), "partition": n % 2} for n in range(20)])
    whole = compared_topic()
    assert (20, 0) == (whole["articles"], whole["changed_articles"])
    assert 4 == compared_topic("--max", "4")["articles"]
    # Not the newer request, whose future was once never done.
    assert topics.group not in {each.id for each in admin_of(servers).list_groups(timeout=PATIENCE_S)}
    for topic in (topics.output, topics.dead_letters):
        assert {0} == {end for _, end in committed_and_ends(servers, topics.group, topic).values()}
