"""`enricher verify` on the output of workers, and what it prints."""

from __future__ import annotations

import json

import pytest
from commands.cli_runner import run
from kafka.harness import Sent, as_sent, publish, short_articles, transaction, worker
from rich.console import Console
from support.operating import expel
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics
from verify.pair import complete

from enricher.operate.verify import command
from enricher.operate.verify.command import show
from enricher.operate.verify.ledger import Check, Place, Report
from enricher.worker.kafka.properties import KafkaConfig
from tools.chaos.stub import StubEngine, stub_model
from tools.worker_parts import tasks_of


@pytest.mark.broker
def test_what_a_worker_wrote_holds(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Articles, a tombstone, bad input and aborted input; also recomputed by the stub for a model that enriched them.

    By real models: `commands/test_mapped_articles.py` and `pipeline/test_several_tasks.py`.
    """
    inputs = [as_sent(article) for article in short_articles(60)]
    inputs += [
        Sent(b"gone", None),
        Sent(b"bad", b"{"),
        Sent(None, b"[]"),
        as_sent({"id": "pretty", "body": "In\nOslo"}),
    ]
    publish(topics.bootstrap_servers, topics.input, inputs[:30])
    with transaction(topics.bootstrap_servers, f"{topics.group}.in", commit=False) as producer:
        for partition in range(4):
            producer.produce(topics.input, b'{"id": "never", "body": "Rome"}', b"k", partition=partition)
    publish(topics.bootstrap_servers, topics.input, inputs[30:])
    with worker(topics.environment, "--until-caught-up", stub=True) as process:
        assert process.wait(PATIENCE_S) == 0
    monkeypatch.setattr(command, "load_tasks", lambda settings: tasks_of(settings, stub_model(StubEngine())))
    result = run("verify", "--recompute", "1000", "--json", env=topics.environment)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {"ok"} == {check["state"] for check in report["checks"]}
    counts = {"committed inputs": 64, "records": 61, "tombstones": 1, "dead letters": 2}
    assert counts == {name: report["facts"][name] for name in counts}
    assert 61 == next(check["checked"] for check in report["checks"] if check["check"] == "payload")


@pytest.mark.broker
def test_verifying_while_workers_run_complains_about_nothing(topics: Topics) -> None:
    """Outputs and committed offsets change during each verification, and a worker is killed; it passes every time."""
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(200)))
    environment = topics.environment | {
        "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
        "ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "4",  # a transaction for every few articles
    }
    looks: list[int] = []
    with worker(environment, stub=True) as first:
        wait_until(lambda: _look(environment, looks) > 0, PATIENCE_S, "something is committed")
        first.kill()
    expel(topics.bootstrap_servers, topics.group)  # else the next one waits until the session ends
    with worker(environment | {"ENRICHER_KAFKA__INSTANCE": "worker-1"}, stub=True):
        for seed in (2, 3):
            publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(100, seed)))
            _look(environment, looks)
        wait_until(lambda: _look(environment, looks) == 400, PATIENCE_S, "all is committed")
    assert looks == sorted(looks)
    assert any(0 < look < 400 for look in looks), "nothing was under way while it looked"


def _look(environment: dict[str, str], looks: list[int]) -> int:
    """Run `verify`; returns how many inputs were committed."""
    result = run("verify", "--json", env=environment)
    assert result.exit_code == 0, result.output
    looks.append(json.loads(result.stdout)["facts"].get("committed inputs", 0))
    return looks[-1]


@pytest.mark.broker
def test_a_violation_is_exit_code_8_and_names_the_place(topics: Topics) -> None:
    """Also for people: the check, and topic, partition and offset, but no text."""
    inputs = complete(topics, lambda outputs: outputs.pop(25))
    result = run("verify", env=topics.environment)
    assert result.exit_code == 8
    assert "the promise is broken (lost)" in result.stdout
    assert f"{topics.input}[{inputs[25].partition()}]@{inputs[25].offset()}" in result.stdout
    assert "text" not in result.stdout


def test_an_unknown_check_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown check is no failure, and the verdict mentions it."""
    lost = Check("lost", "all are there", checked=3, doubt="the oldest are deleted")
    many = Check("order", "in order", failed=12, examples=[Place("in", 1, 7)])
    config = KafkaConfig("", "group", "", "in", "out", "dead", 6, 6, 6, 6, 1, 1)
    show(Report((lost,), {}), config, Console(width=200))
    unknown = capsys.readouterr().out
    assert "unknown: the oldest are deleted" in unknown
    assert "the promise holds, as far as the topics can tell (unknown: lost)" in unknown
    show(Report((lost, many), {"records": 5}), config, Console(width=200))
    failed = capsys.readouterr().out
    assert "in[1]@7 and 11 more" in failed
    assert "5 records" in failed
