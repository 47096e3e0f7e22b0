"""What a check says: ok, warn or FAIL, what was seen, what to do. And what all of them together mean.

Knows no broker and no model. Secrets never get in here: findings hold names and numbers, not properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.markup import escape
from rich.table import Table

from enricher.errors import BrokerError, EnricherError, ModelError, SettingsError

Side = Literal["settings", "broker", "model", "machine"]
Verdict = Literal["ok", "warn", "FAIL"]

_STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "FAIL": "bold red"}
# The first that failed decides: with wrong settings nothing else is certain.
_EXIT_CODES: tuple[tuple[Side, int], ...] = (
    ("settings", SettingsError.exit_code),
    ("broker", BrokerError.exit_code),
    ("model", ModelError.exit_code),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `seen` is what was found, `advice` what to do about it (empty for ok), `took_s` is for trials."""

    side: Side
    check: str
    verdict: Verdict
    seen: str
    advice: str = ""
    took_s: float | None = None


@dataclass(frozen=True, slots=True)
class Voice:
    """Speaks for one side."""

    side: Side

    def ok(self, check: str, seen: str) -> Finding:
        """Say that all is well."""
        return Finding(self.side, check, "ok", seen)

    def warn(self, check: str, seen: str, advice: str) -> Finding:
        """Say that it runs, with something to know."""
        return Finding(self.side, check, "warn", seen, advice)

    def fail(self, check: str, seen: str, advice: str) -> Finding:
        """Say that it does not run, or not right."""
        return Finding(self.side, check, "FAIL", seen, advice)

    def tried(self, check: str, trial: Callable[[], str], advice: str) -> Iterator[Finding]:
        """What came of `trial`: ok with what it returns, FAIL with what it raises."""
        try:
            yield self.ok(check, trial())
        except EnricherError as error:
            yield self.fail(check, str(error), advice)


def exit_code(findings: Sequence[Finding]) -> int:
    """0 where nothing failed, else the exit code that the worker itself would end with."""
    failed = {finding.side for finding in findings if finding.verdict == "FAIL"}
    return next((code for side, code in _EXIT_CODES if side in failed), 0)


def as_table(findings: Sequence[Finding]) -> Table:
    """For people: a line per check, and what to do below it."""
    table = Table("", "check", "what was seen, and what to do", show_lines=False)
    for finding in findings:
        style = _STYLES[finding.verdict]
        table.add_row(f"[{style}]{finding.verdict}[/]", escape(finding.check), _text(finding))
    return table


def as_line(finding: Finding) -> str:
    """For people who wait: verdict, name and time of one check, with the markup of the console."""
    style = _STYLES[finding.verdict]
    return f"[{style}]{finding.verdict:4}[/] {escape(finding.check)}{_time(finding)}"


def _text(finding: Finding) -> str:
    text = escape(finding.seen) + _time(finding)
    if finding.advice:
        text += f"\n[bold]->[/] {escape(finding.advice)}"
    return text


def _time(finding: Finding) -> str:
    return "" if finding.took_s is None else f" ({finding.took_s:.1f} s)"


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """For machines."""
    return {"exit_code": exit_code(findings), "checks": [asdict(finding) for finding in findings]}
