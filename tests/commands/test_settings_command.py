"""`enricher settings`, its tables for the page deploy/settings.md, and a file in a folder that somebody else controls.

Such a file loads no code, and every command logs that it is read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands.cli_runner import run

from enricher.errors import SettingsError
from enricher.worker.commands.settings import settings_tables
from enricher.worker.settings.listing import USUAL, all_rows, group_reason


def test_every_setting_is_one_row_of_the_tables() -> None:
    """The command prints what the site shows on its page.

    Each group says once what it is: beside the settings that people set, and not again beside those for experts.
    """
    rows = [line for line in settings_tables().splitlines() if line.startswith("| `") and line.endswith(" |")]
    assert len(list(all_rows())) + 1 == len(rows)
    words = " ".join(settings_tables().split())
    assert {} == {group: count for group in USUAL if (count := words.count(group_reason(group))) != 1}
    assert run("settings", "--markdown").stdout == settings_tables()


def test_every_name_of_the_list_of_usual_settings_is_a_setting() -> None:
    """The tables of the others come behind theirs."""
    shown = {(row.group, row.name) for row in all_rows() if not row.expert}
    assert {(group, name) for group, names in USUAL.items() for name in names.split()} <= shown


def test_every_setting_is_listed_with_a_reason() -> None:
    """No setting is unexplained."""
    printed = run("settings").stdout
    assert all(row.reason and f"{row.variable}=" in printed for row in all_rows())


def test_values_in_force_are_shown_and_secrets_are_not() -> None:
    """A changed value is shown; of secret properties, only the name."""
    properties = {"sasl.username": "worker", "sasl.password": "hunter2", "producer.ssl.key.pem": "KEYKEY"}
    environment = {"ENRICHER_KAFKA__PROPERTIES": json.dumps(properties), "ENRICHER_KAFKA__GROUP_ID": "other-group"}
    result = run("settings", env=environment)
    assert "ENRICHER_KAFKA__GROUP_ID=other-group  (default: enricher)" in result.stdout
    assert '"sasl.username": "***"' in result.stdout
    assert "hunter2" not in result.output
    assert "KEYKEY" not in result.output


def test_wrong_settings_still_get_the_list() -> None:
    """The error message refers to the list, so the list is printed before the error."""
    result = run("settings", env={"ENRICHER_KAFKA__GROUP": "x"})
    assert "ENRICHER_KAFKA__GROUP_ID=enricher" in result.stdout
    assert isinstance(result.exception, SettingsError)


def test_the_json_schema_knows_every_setting() -> None:
    """A TOML file can be validated against it."""
    definitions = json.loads(run("settings", "--json-schema").stdout)["$defs"]
    groups = [definition for title, definition in definitions.items() if title.endswith("Settings")]
    names = {name for definition in groups for name in definition["properties"]}
    assert {row.name for row in all_rows()} == names


def test_only_changed_settings_are_listed_if_asked() -> None:
    """What was set to something else than its default; neither what depends on the machine, nor what was set to it."""
    environment = {
        "ENRICHER_KAFKA__GROUP_ID": "other-group",
        "ENRICHER_KAFKA__INPUT_TOPIC": "articles",
        "ENRICHER_TASKS": '{"topic": {"source": "/models/topic"}}',
    }
    printed = run("settings", "--changed", env=environment).stdout
    assert ["ENRICHER_KAFKA__GROUP_ID=other-group", "tasks.topic.source=/models/topic"] == [
        line.split()[0] for line in printed.splitlines() if "=" in line.split(" ")[0]
    ]
    assert "" == run("settings", "--changed").stdout


def test_settings_can_be_looked_for() -> None:
    """By a word of the name or the reason, in any case; one that is in none is refused."""
    printed = run("settings", "--filter", "Bootstrap").stdout
    assert "ENRICHER_KAFKA__BOOTSTRAP_SERVERS=localhost:9092" in printed
    assert "GROUP_ID" not in printed
    assert "ENRICHER_HEALTH__HOST=" in run("settings", "--filter", "the kubelet").stdout
    assert "--filter bootstrab: no setting has this word" in str(run("settings", "--filter", "bootstrab").exception)


FILE = "articles.jsonl"


def hostile_folder() -> None:
    """Write settings with a library that librdkafka would load before it connects."""
    library = str(Path("plugin.so").absolute())
    Path("enricher.toml").write_text(f'[kafka.properties]\n"plugin.library.paths" = "{library}"\n', "utf-8")
    Path(FILE).write_text('{"id": "1", "body": "Lisbon"}\n', "utf-8")


@pytest.mark.parametrize("command", [["publish", FILE], ["verify"]], ids=lambda command: command[0])
def test_no_command_loads_what_a_file_names(command: Sequence[str], caplog: pytest.LogCaptureFixture) -> None:
    """It ends before it connects, and has logged the file."""
    caplog.set_level(logging.INFO)
    hostile_folder()
    result = run(*command)
    assert isinstance(result.exception, SettingsError)
    assert "may not set 'plugin.library.paths': it would load code" in str(result.exception)
    assert f"settings come from {Path('enricher.toml').absolute()}" in caplog.messages
