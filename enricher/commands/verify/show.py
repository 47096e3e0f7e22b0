"""How a verification looks: a line per check, what failed and where, what was counted on the way, the verdict."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enricher.kafka.client import KafkaConfig
from enricher.verify import EARLIER, Check, Report

_STYLES = {"ok": "green", "failed": "bold red", "unknown": "yellow"}
_WORDS = {"ok": "ok", "failed": "FAILED", "unknown": "unknown"}


def progress_text(doing: str, done: int, total: int, elapsed_s: float) -> str:
    """How far one step is, and how long all of them have taken."""
    return f"{doing}: {done:,} of {total:,} ({elapsed_s:.0f} s)"


def show(report: Report, config: KafkaConfig, console: Console) -> None:
    """Print a report."""
    table = Table("", "check", "checked", "failed", "what holds, or where it does not")
    for check in report.checks:
        state = f"[{_STYLES[check.state]}]{_WORDS[check.state]}[/]"
        table.add_row(
            state, check.name, f"{check.checked:,}", f"{check.failed:,}" if check.failed else "", _text(check)
        )
    console.print(table)
    counted = ", ".join(f"{count:,} {name}" for name, count in report.facts.items() if count and name != EARLIER)
    console.print(f"counted: {escape(counted) or 'nothing'}", soft_wrap=True)
    if earlier := report.facts.get(EARLIER):
        console.print(f"{earlier:,} outputs belong to an earlier topic of this name: they are not judged")
    console.print(f"{_verdict(report)}: {escape(_names(config))}", soft_wrap=True)


def _text(check: Check) -> str:
    if check.state == "ok":
        return escape(check.holds)
    if check.state == "unknown":
        return escape(f"cannot be told: {check.doubt}")
    more = check.failed - len(check.examples)
    places = ", ".join(map(str, check.examples)) + (f" and {more:,} more" if more else "")
    return f"not so: {escape(check.holds)}\n{escape(places)}"


def _verdict(report: Report) -> str:
    if not report.holds:
        return f"[bold red]the promise is broken[/] ({', '.join(report.failed)})"
    unknown = [check.name for check in report.checks if check.state == "unknown"]
    doubts = f", as far as can be told (not: {', '.join(unknown)})" if unknown else ""
    return f"[green]the promise holds[/]{doubts}"


def _names(config: KafkaConfig) -> str:
    return f"{config.input_topic} -> {config.output_topic}, {config.dead_letter_topic}; group {config.group_id}"
