"""The HTML page: aims and whether they held, every leg's plots and tables, the machine, the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from enricher.workshop.pages.frame import Badge, bullets, facts, page, section, table
from tools.bench.drawing import svg
from tools.bench.outcome import Outcome, Table


def html(outcomes: Mapping[str, Outcome], about: Mapping[str, str], machine: Mapping[str, Any], command: str) -> str:
    """A self-contained document with its plots inline."""
    claims = [claim for outcome in outcomes.values() for claim in outcome.claims]
    held = sum(claim.held for claim in claims)
    badge = Badge(f"{held} of {len(claims)} aims held", good=held == len(claims)) if claims else None
    aims = section("Aims", "", bullets(f"{'held' if claim.held else 'MISSED'}: {claim.text}" for claim in claims))
    legs = [_leg(name, about[name], outcome) for name, outcome in outcomes.items()]
    foot = section("Machine and command", "All figures are from one run.", facts(_facts(machine, command)))
    return page("The worker against its model", str(machine["processor"]), [aims, *legs, foot], badge)


def _leg(name: str, about: str, outcome: Outcome) -> str:
    return section(name, about, *map(svg, outcome.plots), *map(_table, outcome.tables))


def _table(each: Table) -> str:
    return f'<h2>{escape(each.title)}</h2><p class="note">{escape(each.note)}</p>{table(each.columns, each.rows)}'


def _facts(machine: Mapping[str, Any], command: str) -> Sequence[tuple[str, str]]:
    plain = [(name, str(value)) for name, value in machine.items() if not isinstance(value, Mapping)]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return [*plain, ("packages", packages), ("command", command)]
