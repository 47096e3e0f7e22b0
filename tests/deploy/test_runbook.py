"""The runbook has one entry per alert, and names only metrics, panels, settings and codes that exist."""

from __future__ import annotations

import re

import yaml

from deploy.monitoring.generator.exported import instruments_by_series
from deploy.monitoring.generator.files import ALERTS, RUNBOOK
from deploy.monitoring.generator.layout import ROWS
from deploy.monitoring.generator.seen import recorded_names
from enricher.cli import EXIT_CODES
from enricher.worker.settings.listing import all_rows

TEXT = RUNBOOK.read_text("utf-8")
RUNNING = (RUNBOOK.parents[1] / "running.md").read_text("utf-8")
ENTRIES = {
    section.split("\n", 1)[0]: section.split("\n", 1)[1] for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]
}
MEANS, PARTS = "**Means.**", ["**Look at.**", "**Do.**"]
MAX_WORDS = 60
OF_OTHER_COMMANDS = {8, 9, 10, 11, 13, 130}


def alerts() -> list[str]:
    """The names of the alerts, in the order of the file."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


def test_there_is_one_entry_for_every_alert_and_none_for_others() -> None:
    """They are in the same order."""
    assert alerts() == list(ENTRIES)


def test_an_entry_says_what_to_look_at_and_what_to_do() -> None:
    """In this order, none of them empty; before them what it means, if that is more than the alert's own text."""
    for name, entry in ENTRIES.items():
        parts = re.findall(r"^(\*\*[A-Z][a-z ]+\.\*\*) \S", entry, flags=re.MULTILINE)
        assert parts in (PARTS, [MEANS, *PARTS]), name


def test_an_entry_is_short() -> None:
    """Whoever is on call reads it at night; what is longer belongs on the page that it links."""
    words = {name: len(entry.partition("\n## ")[0].split()) for name, entry in ENTRIES.items()}
    assert {} == {name: count for name, count in words.items() if count > MAX_WORDS} != words


def test_metrics_that_it_names_exist() -> None:
    """A renamed metric would mislead whoever is on call."""
    named = set(re.findall(r"`((?:job:|enricher_|messaging_|process_|hw_)[\w:]+)`", TEXT))
    assert named
    assert named - instruments_by_series().keys() - set(recorded_names()) == set()


def test_panels_that_it_names_are_on_the_dashboard() -> None:
    """Text in quotation marks is a panel's title."""
    titles = {panel.title for row in ROWS for panel in row.panels}
    named = set(re.findall(r'"([^"]+)"', " ".join(TEXT.split())))
    assert named
    assert named - titles == set()


def test_settings_that_it_names_exist() -> None:
    """A renamed setting would, too."""
    settings = {row.variable for row in all_rows()}
    named = set(re.findall(r"`(ENRICHER_[A-Z_]+)`", TEXT))
    assert named
    assert named - settings == set()


def test_every_exit_code_of_a_worker_has_its_line() -> None:
    """A worker that keeps restarting gives the reason in its exit code; the table of codes says what to do."""
    told = {int(code) for code in re.findall(r"^\| (\d+) \| .+ \| \S.* \|$", RUNNING, flags=re.MULTILINE)}
    assert EXIT_CODES.keys() - {0} - OF_OTHER_COMMANDS == told
