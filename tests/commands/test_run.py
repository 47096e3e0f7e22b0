"""The command `run`: how a parent starts its children, and the share of each."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands.cli_runner import run
from support.patience import PATIENCE_S

from enricher.errors import SettingsError
from enricher.worker.commands import run as run_command
from enricher.worker.commands.run import RunOptions, Share, child_command
from enricher.worker.settings import Settings, load_settings

PLAIN = RunOptions(until_caught_up=False, summary=None, report_every_s=10.0)


def share_of(settings: Settings, index: int, count: int) -> tuple[str, int | None, int | None]:
    """Instance name, concurrency and tokenizer threads of one process."""
    own = Share(index, count).of(settings)
    return own.kafka.instance, own.model.concurrency, own.worker.tokenizer_threads


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight cores and no GPU."""
    monkeypatch.setattr(run_command, "available_cores", lambda: 8)
    monkeypatch.setenv("ENRICHER_KAFKA__INSTANCE", "worker-7")
    monkeypatch.setenv("ENRICHER_MODEL__DEVICE", "cpu")


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("settings", "count", "concurrency", "threads"),
    [
        *(({}, *each) for each in ((2, 4, 2), (3, 2, 1), (8, 1, 1), (16, 1, 1))),
        ({"MODEL__CONCURRENCY": "5", "WORKER__TOKENIZER_THREADS": "3"}, 2, 5, 3),
        ({"MODEL__DEVICE": "cuda:1"}, 2, None, 2),
    ],
)
def test_processes_divide_the_cores_among_them(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], count: int, concurrency: int | None, threads: int
) -> None:
    """Without this, each process would start as many threads as there are cores. Instance names always differ.

    Only defaults are divided, and on a GPU each process keeps the default concurrency.
    """
    monkeypatch.setattr(run_command, "resolve_device", lambda name: name.partition(":")[0])
    for name, value in settings.items():
        monkeypatch.setenv(f"ENRICHER_{name}", value)
    assert ("worker-7-1", concurrency, threads) == share_of(load_settings(), 1, count)


def test_a_child_is_called_as_its_parent_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its number and the parent's options, and writes its counts to its own file."""
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    assert [sys.executable, "-m", "enricher", "run", "--process", "1/4", "--report-every-s", "10.0"] == list(
        child_command(Share(1, 4), PLAIN)
    )
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    everything = RunOptions(until_caught_up=True, summary=Path("out") / "counts.json", report_every_s=2.5)
    expected = child_command(Share(0, 2), everything)
    assert [sys.executable, "-m", "enricher", "--quiet", "run", "--process", "0/2"] == list(expected[:7])
    assert ["--report-every-s", "2.5", "--until-caught-up", "--summary", str(Path("out") / "counts-0.json")] == list(
        expected[7:]
    )


@pytest.mark.parametrize("text", ["1", "2/2", "-1/2", "a/b", "0/", ""])
def test_a_malformed_share_is_refused(text: str) -> None:
    """Only a parent sets `--process`."""
    with pytest.raises(SettingsError, match="INDEX/COUNT"):
        Share.parse(text)
    assert Share(3, 4) == Share.parse(str(Share(3, 4)))


@pytest.mark.parametrize("count", ["0", "65", "2"])
def test_a_parent_refuses_what_is_wrong_before_it_starts_anything(count: str) -> None:
    """A number out of range is a mistake of usage; one in the settings is reported once, by the parent."""
    result = run("run", "--processes", count, env={"ENRICHER_MODEL__DEVICE": "gpu"})
    assert isinstance(result.exception, SettingsError) if count == "2" else 2 == result.exit_code


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_summary_that_cannot_be_written_is_refused_at_the_start(processes: str) -> None:
    """The end of a backfill would be too late."""
    result = run("run", "--summary", "nowhere/counts.json", "--processes", processes)
    assert isinstance(result.exception, SettingsError)
    assert "--summary" in str(result.exception)


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_last_line_of_a_log_is_in_the_form_of_the_others(form: str) -> None:
    """A reader of JSON lines must find the reason for the end; people get it as from every command on a terminal."""
    settings = {"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "soon", "ENRICHER_LOG__FORMAT": form}
    command = [sys.executable, "-m", "enricher", "run"]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    *_, last = done.stderr.splitlines()
    if form == "json":
        line = json.loads(last)
        assert "error" == line["level"]
        last = line["message"]
    assert (2, True) == (done.returncode, last.startswith("ending with code 2: " if form == "json" else "enricher: "))
    assert "REQUEST_TIMEOUT_S" in last
