"""`enricher doctor` against the real broker: a healthy set-up, and the ways in which one can be wrong.

Also about tasks and their reports, and `--transactions`: its output, its exit code, and its clean-up however it ends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from commands.cli_runner import run
from commands.model_app import tiny_model
from confluent_kafka import Producer
from kafka.test_transaction_trials import EveryReaderSeesAll, assert_nothing_is_left
from support.heads import class_model, vector_model
from support.operating import alter, commit, write
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.topics import QUICK_TO_START, Topics

from enricher.operate.doctor import transactions as running
from enricher.operate.doctor.articles import article_findings
from enricher.operate.doctor.broker import broker_findings
from enricher.operate.doctor.findings import Finding, Reporter, as_json, exit_code
from enricher.operate.doctor.models import model_findings
from enricher.operate.doctor.promises import PROMISES, Clients, Outcome, Promise
from enricher.operate.doctor.transactions import finding_of
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import load_settings
from enricher.worker.wiring import loaded_tasks
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import load_model

pytestmark = pytest.mark.usefixtures("shared_models")


def findings(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    """The findings about the broker, by check."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {finding.check: finding for finding in broker_findings(kafka_config(load_settings()))}


def failed(found: Mapping[str, Finding]) -> list[str]:
    """The checks that failed."""
    return [check for check, finding in found.items() if finding.verdict == "FAIL"]


@pytest.mark.broker
def test_a_healthy_set_up_fails_in_nothing(topics: Topics) -> None:
    """Exit code 0 after checks of broker, rights, model and device, with a warning about the single replica."""
    result = run("doctor", "--json", env=topics.environment)
    assert result.exit_code == 0, result.output
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert {check["side"] for check in checks.values()} == {"settings", "broker", "model"}
    well = ("topics and rights", "right: transactional id WRITE", "one partition per key")
    assert {"ok"} == {checks[name]["verdict"] for name in well}
    assert checks[f"topic {topics.output}"]["verdict"] == "warn"
    assert "Angela Merkel PER, United Nations ORG, Berlin LOC" in checks["one sentence"]["seen"]


@pytest.mark.broker
def test_nothing_is_written_or_committed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of the group stay, and a worker with the same settings can finish its transaction while doctor runs."""
    servers = topics.bootstrap_servers
    commit(servers, topics.group, topics.input, {2: 5})
    worker = Producer({"bootstrap.servers": servers, "transactional.id": f"{topics.group}/worker-0"})
    worker.init_transactions(PATIENCE_S)
    worker.begin_transaction()
    assert failed(findings(topics.environment, monkeypatch)) == []
    committed = committed_and_ends(servers, topics.group, topics.input)
    assert {number: offset for number, (offset, _) in committed.items()} == {0: -1001, 1: -1001, 2: 5, 3: -1001}
    for topic in (topics.output, topics.dead_letters):
        assert {0} == {end for _, end in committed_and_ends(servers, topics.group, topic).values()}
    worker.produce(topics.output, b"{}", b"k")
    worker.commit_transaction(PATIENCE_S)
    assert [message.key() for message in read_all(servers, topics.output)] == [b"k"]


@pytest.mark.parametrize("options", [(), ("--transactions",)], ids=str)
def test_no_broker_is_exit_code_4_with_the_reason(options: tuple[str, ...]) -> None:
    """The client reports only 'transport failure'. The model is checked all the same, and no trial begins."""
    environment = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "0.5"}
    result = run("doctor", *options, env=environment)
    assert result.exit_code == 4, result.output
    assert "Connection refused" in " ".join(result.stdout.split())
    assert (options == ()) == ("one sentence" in result.stdout)


ABSENT = {
    "PROPERTIES": '{"no.such.property": "hidden"}',
    "REQUEST_TIMEOUT_S": "0.5",
    "BOOTSTRAP_SERVERS": "127.0.0.1:1",
}


@pytest.mark.parametrize(
    ("part", "settings", "check", "seen"),
    [
        ("settings", {"KAFKA__GROUP": "x"}, "settings", "KAFKA__GROUP: no such setting"),
        ("broker", {f"KAFKA__{name}": value for name, value in ABSENT.items()}, "settings", "no.such.property"),
        (
            *("settings", {"KAFKA__PROPERTIES": '{"sasl.password": {"file": "/nowhere/password"}}'}, "settings"),
            "/nowhere/password, which cannot be read",
        ),
        ("model", {"BATCHING__OVERLAP_TOKENS": "120"}, "windows", "batching.overlap_tokens is 120"),
        (
            *("model", {"TASKS": '{"names": {"source": "newswire-e5", "pooling": "max"}}'}, "tasks"),
            "names.pooling has no effect",
        ),
    ],
)
def test_wrong_settings_are_exit_code_2(part: str, settings: Mapping[str, str], check: str, seen: str) -> None:
    """In the environment, in librdkafka's properties, or for the model: only the checkpoint tells what suits it.

    A value is never shown.
    """
    environment = {f"ENRICHER_{name}": value for name, value in settings.items()}
    result = run("doctor", "--only", part, "--json", env=environment)
    found = {each["check"]: each for each in json.loads(result.stdout)["checks"]}
    assert (2, "FAIL") == (result.exit_code, found[check]["verdict"]), result.output
    assert seen in found[check]["seen"]
    assert "hidden" not in result.output


def test_a_model_that_is_not_there_is_exit_code_3() -> None:
    """The finding names it."""
    result = run("doctor", "--only", "model", env={"ENRICHER_MODEL__SOURCE": "no-such-folder"})
    assert result.exit_code == 3, result.output
    assert "no-such-folder" in result.stdout


@pytest.mark.broker
def test_a_missing_or_short_topic_fails_and_is_not_created(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding names it with advice, the other topics are looked at, and looking does not create it.

    Too few output partitions are a wrong setting: the order per key would be lost between input and output.
    """
    missing, odd = f"{topics.output}-missing", f"{topics.output}-odd"
    for _ in range(2):
        found = findings(topics.environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": missing}, monkeypatch)
        assert failed(found) == ["topics and rights"]
        assert f"there is no topic '{missing}': create it ('enricher topics create')" in found["topics and rights"].seen
        assert f"topic {topics.input}" in found
    environment = topics.environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": odd}
    assert run("topics", "create", "--partitions", "3", env=environment).exit_code == 0
    found = findings(environment, monkeypatch)
    assert (["topics and rights"], "settings") == (failed(found), found["topics and rights"].side)
    assert "fewer" in found["topics and rights"].seen


@pytest.mark.broker
def test_topics_that_do_not_suit_are_warnings_with_advice(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka keeps compression by default; a compacted output refuses records without a key, and the input has such.

    A topic that cannot be written, because it wants more replicas than it has, is a failure.
    """
    servers, command = topics.bootstrap_servers, f"--topic {topics.input} --add-config compression.type=uncompressed"
    before = findings(topics.environment, monkeypatch)[f"topic {topics.input}"]
    assert ("warn", True) == (before.verdict, "compression.type=producer" in before.seen)
    assert command in before.advice
    alter(servers, topics.input, {"compression.type": "uncompressed"})
    alter(servers, topics.output, {"cleanup.policy": "compact"})
    write(servers, topics.input, [{"value": b"{}"}, {"value": b"{}", "key": b"k"}])
    found = findings(topics.environment, monkeypatch)
    assert failed(found) == []
    assert command not in found[f"topic {topics.input}"].advice
    assert "It is compacted" in found[f"topic {topics.output}"].advice
    assert "It is compacted" not in found[f"topic {topics.dead_letters}"].advice
    articles = {finding.check: finding.seen for finding in article_findings(load_settings(), Watchdog().guard)}
    assert "1 of the newest 2 records have no key" == articles["keys of articles"]
    alter(servers, topics.output, {"min.insync.replicas": "2"})
    assert f"topic {topics.output}" in failed(findings(topics.environment, monkeypatch))


def test_the_exit_code_is_that_of_the_worst_side() -> None:
    """Settings come before the broker, the broker before the model; warnings alone give 0."""
    broker, model = (Reporter(side).fail("x", "", "") for side in ("broker", "model"))
    assert exit_code([Reporter("broker").warn("x", "", "")]) == 0
    assert exit_code([model, broker]) == 4
    assert exit_code([model]) == 3
    assert exit_code([model, broker, Reporter("settings").fail("x", "", "")]) == 2
    assert as_json([model])["exit_code"] == 3


LABELS = ("economy", "politics", "sports")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders of heads by task: two on one encoder. Graphs are cached in the test's folder."""
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    for name, value in {**QUICK_TO_START, "ENRICHER_MODEL__DEVICE": "cpu"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        loaded_tasks, "load_model", load_model
    )  # a report that comes later decides, so it is not shared
    ner = tiny_model(tmp_path / "ner")
    return {"topics": class_model(ner, tmp_path / "topics", LABELS), "vectors": vector_model(ner, tmp_path / "vectors")}


def model_checks(monkeypatch: pytest.MonkeyPatch, tasks: dict[str, dict[str, object]]) -> dict[str, Finding]:
    """The findings about the models of these tasks, by check."""
    monkeypatch.setenv("ENRICHER_TASKS", json.dumps(tasks))
    return {finding.check: finding for finding in model_findings(load_settings())}


def test_one_article_goes_through_the_heads_of_all_tasks(
    found: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a task for another language."""
    tasks: dict[str, dict[str, object]] = {name: {"source": str(folder)} for name, folder in found.items()}
    told = model_checks(monkeypatch, {**tasks, "topics": {**tasks["topics"], "languages": ["de"]}})
    assert {"model", "device", "precision", "one sentence"} == told.keys()
    assert all(finding.verdict != "FAIL" for finding in told.values())
    assert "topics: topics (" in told["model"].seen
    assert "vectors: vectors (" in told["model"].seen
    sentence = told["one sentence"].seen
    assert any(f"topics: {label} " in sentence for label in LABELS)
    assert "vectors: vector of " in sentence


@pytest.mark.broker
def test_a_broker_that_breaks_a_promise_is_exit_code_4(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table names the promise that does not hold with its consequence, and also those that hold."""
    monkeypatch.setattr(running, "Clients", EveryReaderSeesAll)
    result = run("doctor", "--transactions", env=topics.environment)
    assert result.exit_code == 4, result.output
    shown = " ".join(re.sub("[\u2500-\u257f]", " ", result.stdout).split())
    assert "FAIL commit and abort does not hold: with a transaction open a committed reader saw" in shown
    assert "FAIL offsets in the transaction does not hold" in shown
    # Others read offsets of a transaction that has just been committed, for which such a reader does not wait.
    assert "ok fencing by generation" in shown, shown
    assert "Do not run a worker on this broker" in shown
    verdicts = {promise.name: rf"(ok|FAIL) +{promise.name}" for promise in PROMISES}
    assert [name for name, line in verdicts.items() if not re.search(line, result.stderr)] == [], "told as each ends"
    assert_nothing_is_left(topics.bootstrap_servers, f"{topics.group}-doctor")


def no_trial(_clients: Clients) -> Outcome:
    """Never called."""
    raise AssertionError


@pytest.mark.parametrize(("holds", "verdict"), [(True, "ok"), (False, "FAIL"), (None, "FAIL")])
def test_a_promise_that_was_not_tried_does_not_count_as_kept(holds: bool | None, verdict: str) -> None:  # noqa: FBT001
    """It fails the command as one that does not hold."""
    promise = Promise("p", "claim", "otherwise", no_trial)
    assert finding_of(promise, Outcome(holds, "seen"), "rights").verdict == verdict


@pytest.mark.broker
def test_an_interrupted_trial_leaves_no_topic(topics: Topics) -> None:
    """SIGTERM, which ends it as Ctrl-C does, deletes what was created first, and the output says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "enricher", "doctor", "--transactions"],
        env=os.environ | topics.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "topics of the trials" in line:
                break
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "stopped early: deleting the topic" in said
    assert "Traceback" not in said
    assert_nothing_is_left(topics.bootstrap_servers, f"{topics.group}-doctor")
