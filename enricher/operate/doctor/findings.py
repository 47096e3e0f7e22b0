"""Findings: what a check returns (ok, warn or FAIL, what was found, what to do), how they are shown, the exit code.

Findings hold names and numbers, never properties of the client, so no secret is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.markup import escape
from rich.table import Table

from enricher.errors import BrokerError, ModelError, SettingsError

Side = Literal["settings", "broker", "registry", "model"]
Severity = Literal["ok", "warn", "FAIL"]

_STYLES: dict[Severity, str] = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
# The first failed side decides: if the settings are wrong, nothing else is certain.
_EXIT_CODES: tuple[tuple[Side, int], ...] = (
    ("settings", SettingsError.exit_code),
    ("broker", BrokerError.exit_code),
    ("registry", BrokerError.exit_code),
    ("model", ModelError.exit_code),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `seen` is what was found, `advice` what to do about it, empty if ok."""

    side: Side
    check: str
    verdict: Severity
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes the findings of one side."""

    side: Side

    def ok(self, check: str, seen: str) -> Finding:
        """A check that passed."""
        return Finding(self.side, check, "ok", seen)

    def warn(self, check: str, seen: str, advice: str) -> Finding:
        """A worker would run, with a limitation."""
        return Finding(self.side, check, "warn", seen, advice)

    def fail(self, check: str, seen: str, advice: str) -> Finding:
        """A worker would not run, or not correctly."""
        return Finding(self.side, check, "FAIL", seen, advice)


def exit_code(findings: Sequence[Finding]) -> int:
    """0 if nothing failed, else the exit code that a worker would end with."""
    failed = {finding.side for finding in findings if finding.verdict == "FAIL"}
    return next((code for side, code in _EXIT_CODES if side in failed), 0)


def as_table(findings: Sequence[Finding]) -> Table:
    """A row per check, with the advice below what was found."""
    table = Table("", "check", "what was found, and what to do", show_lines=False)
    for finding in findings:
        style = _STYLES[finding.verdict]
        table.add_row(f"[{style}]{finding.verdict}[/]", escape(finding.check), _text(finding))
    return table


def as_line(finding: Finding) -> str:
    """Verdict and name of one check, with markup."""
    style = _STYLES[finding.verdict]
    return f"[{style}]{finding.verdict:4}[/] {escape(finding.check)}"


def _text(finding: Finding) -> str:
    text = escape(finding.seen)
    if finding.advice:
        text += f"\n[bold]->[/] {escape(finding.advice)}"
    return text


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The report of `--json`."""
    return {"exit_code": exit_code(findings), "checks": [asdict(finding) for finding in findings]}
