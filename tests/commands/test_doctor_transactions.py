"""`enricher doctor --transactions`: its output, its exit code, and its clean-up however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from commands.cli_runner import run
from kafka.test_transaction_trials import EveryReaderSeesAll, assert_nothing_is_left
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.operate.doctor import transactions as running
from enricher.operate.doctor.promises import PROMISES, Clients, Outcome, Promise
from enricher.operate.doctor.transactions import Result, finding_of


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
    assert finding_of(Result(promise, Outcome(holds, "seen")), "rights").verdict == verdict


@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_leaves_no_topic(topics: Topics, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM delete what was created first, and the output says so."""
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
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "stopped early: deleting the topic" in said
    assert "Traceback" not in said
    assert_nothing_is_left(topics.bootstrap_servers, f"{topics.group}-doctor")
