"""How a backlog looks to people."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from enricher.scaling.backlog import Backlog, PartitionBacklog

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def table(backlog: Backlog) -> Table:
    """A line for each partition."""
    made = Table()
    for column in ("partition", "committed", "end", "behind", "age"):
        made.add_column(column, justify="right")
    made.add_column("")
    for partition in backlog.partitions:
        made.add_row(*_row(partition))
    return made


def summary(backlog: Backlog) -> str:
    """All partitions in one line."""
    who = escape(f"group {backlog.group} on {backlog.topic}")
    workers = f"{backlog.workers} worker{'' if backlog.workers == 1 else 's'}"
    if not backlog.waiting_partitions:
        return f"[green]nothing waits[/]: {who}, {workers}"
    of = f"{backlog.waiting_partitions} of {len(backlog.partitions)} partitions"
    return f"{backlog.behind:,} behind in {of}, the oldest record for {age_text(backlog.age_s)}: {who}, {workers}"


def age_text(age_s: float | None) -> str:
    """An age for people, e.g. `4.2 s`, `3 min 5 s`, `2 d 4 h`."""
    if age_s is None:
        return "unknown (no timestamp, or it cannot be read)"
    if age_s < 60:
        return f"{age_s:.1f} s"
    left_s, said = int(age_s), []
    for unit_s, name in (*_UNITS, (1, "s")):
        count, left_s = divmod(left_s, unit_s)
        if count:
            said.append(f"{count} {name}")
    return " ".join(said[:2])


def _row(partition: PartitionBacklog) -> tuple[str, ...]:
    committed = "-" if partition.committed is None else f"{partition.committed:,}"
    age = age_text(partition.age_s) if partition.waits else ""
    return (
        str(partition.number),
        committed,
        f"{partition.end:,}",
        f"{partition.behind:,}",
        age,
        escape(partition.remark),
    )
