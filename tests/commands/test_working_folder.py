"""A `.env` in a working folder that somebody else controls: it loads no code, and every command logs that it is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands.cli_runner import run

from enricher.errors import SettingsError

FILE = "articles.jsonl"


def hostile_folder() -> None:
    """Write a `.env` with a library that librdkafka would load before it connects."""
    properties = json.dumps({"plugin.library.paths": str(Path("plugin.so").absolute())})
    Path(".env").write_text(f"ENRICHER_KAFKA__PROPERTIES={properties}\n", "utf-8")
    Path(FILE).write_text('{"id": "1", "body": "Lisbon"}\n', "utf-8")


@pytest.mark.parametrize(
    "command",
    [["lag"], ["publish", FILE], ["tail"], ["topics", "create"], ["verify"]],
    ids=lambda command: command[0],
)
def test_no_command_loads_what_a_dotenv_names(command: Sequence[str], caplog: pytest.LogCaptureFixture) -> None:
    """It ends before it connects, and has logged the file."""
    caplog.set_level(logging.INFO)
    hostile_folder()
    result = run(*command)
    assert isinstance(result.exception, SettingsError)
    assert "may not set 'plugin.library.paths': it would load code" in str(result.exception)
    assert f"settings come from {Path('.env').absolute()}" in caplog.messages


@pytest.mark.parametrize("arguments", [[], ["--processes", "2"]], ids=["alone", "processes"])
def test_run_logs_the_settings_files_even_if_they_are_wrong(
    arguments: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An error names a variable, which is in the file and not in the environment."""
    caplog.set_level(logging.INFO)
    Path(".env").write_text("ENRICHER_KAFKA__INPUT_TOPIK=articles\n", "utf-8")
    result = run("run", *arguments)
    assert isinstance(result.exception, SettingsError)
    assert "ENRICHER_KAFKA__INPUT_TOPIK: no such setting" in str(result.exception)
    assert [f"settings come from {Path('.env').absolute()}"] == caplog.messages


def test_doctor_reports_it_as_a_wrong_setting() -> None:
    """It is a finding, with exit code 2."""
    hostile_folder()
    result = run("doctor")
    assert "may not set 'plugin.library.paths'" in " ".join(result.output.split())
    assert result.exit_code != 0
