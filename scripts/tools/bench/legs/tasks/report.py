"""The report of the leg `tasks`: rates, ratios within a repetition, and the aims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.outcome import Claim, Outcome, Plot, Table
from tools.bench.repeating import Run, Spread, bars, claim, others, rates, ratios

PLAIN, ONE, FOUR = "entities, no tasks set", "one task, entities", "four tasks, one encoder"
ONE_WORKER, FOUR_WORKERS = "one worker, four tasks", "four workers, one task each"
BEFORE, NOW = "the version before", "this version"
OF_FOUR = ("ner", "topic", "tone", "vectors")
SHARED_AIM, WORKERS_AIM, ONE_AIM = 0.97, 3.0, 0.99


@dataclass(frozen=True, slots=True)
class Results:
    """`runs`: backlogs by mix and contender; `crews`: workers that are processes, on news."""

    runs: Mapping[str, Mapping[str, Sequence[Run]]]
    crews: Mapping[str, Sequence[Run]]

    def over_plain(self, mix: str, name: str) -> Spread:
        """Rate over that of entities alone."""
        return ratios(self.runs[mix][name], self.runs[mix][PLAIN])


def outcome(results: Results) -> Outcome:
    figures: dict[str, Any] = {
        "articles_per_s": {mix: _rates(runs) for mix, runs in results.runs.items()},
        "articles_per_s_of_processes": _rates(results.crews),
        "over_entities_alone": {
            mix: {name: results.over_plain(mix, name) for name in (ONE, FOUR)} for mix in results.runs
        },
        "one_worker_over_four": _crews(results, ONE_WORKER, FOUR_WORKERS),
        "padding_share": {name: runs[0].detail["padding_share"] for name, runs in results.runs["news"].items()},
        "others_cores_at_most": others([run for runs in _all(results) for run in runs]),
    }
    if BEFORE in results.crews:
        figures["this_version_over_before"] = _crews(results, NOW, BEFORE)
    tables = [_table(results, mix) for mix in results.runs]
    return Outcome(figures, [*tables, _crews_table(results)], [_plot(results)], _claims(results))


def _all(results: Results) -> Iterator[Sequence[Run]]:
    for runs in results.runs.values():
        yield from runs.values()
    yield from results.crews.values()


def _rates(runs: Mapping[str, Sequence[Run]]) -> dict[str, Spread]:
    return {name: rates(each) for name, each in runs.items()}


def _crews(results: Results, name: str, reference: str) -> Spread:
    return ratios(results.crews[name], results.crews[reference])


def _table(results: Results, mix: str) -> Table:
    rows = [
        (name, f"{rates(runs)}", f"{results.over_plain(mix, name)}", f"{runs[0].detail['padding_share']:.1%}")
        for name, runs in results.runs[mix].items()
    ]
    return Table(f"Tasks: {mix}", ("worker", "articles/s", "over entities alone", "padding"), rows)


def _crews_table(results: Results) -> Table:
    rows = [(name, f"{rates(runs)}", f"{_crews(results, name, FOUR_WORKERS)}") for name, runs in results.crews.items()]
    note = "News. From the first read of any process to the last commit of any; models are loaded before."
    return Table("Tasks: workers as processes", ("workers", "articles/s", "over four workers"), rows, note)


def _plot(results: Results) -> Plot:
    series = [
        bars(mix, list(runs), [results.over_plain(mix, name) for name in runs]) for mix, runs in results.runs.items()
    ]
    return Plot("tasks", "Several tasks on one worker", "barh", "articles/s over entities alone", "", series)


def _claims(results: Results) -> list[Claim]:
    claims = []
    for mix, runs in results.runs.items():
        of_four, of_one = (runs[FOUR], runs[PLAIN]), (runs[ONE], runs[PLAIN])
        shared, one = results.over_plain(mix, FOUR), results.over_plain(mix, ONE)
        claims += [
            _claim(f"four tasks on one encoder run at {{}} of entities alone, {mix}", shared, SHARED_AIM, *of_four),
            _claim(f"one task runs at {{}} of a worker without tasks in its settings, {mix}", one, ONE_AIM, *of_one),
        ]
    crews = results.crews
    workers = _crews(results, ONE_WORKER, FOUR_WORKERS)
    text = "one worker with four tasks is {} times as fast as four with one each"
    claims.append(_claim(text, workers, WORKERS_AIM, crews[ONE_WORKER], crews[FOUR_WORKERS]))
    if BEFORE in crews:
        found, text = _crews(results, NOW, BEFORE), "entities alone run at {} of the version before"
        claims.append(_claim(text, found, ONE_AIM, crews[NOW], crews[BEFORE]))
    return claims


def _claim(text: str, found: Spread, aim: float, *runs: Sequence[Run]) -> Claim:
    every = [run for each in runs for run in each]
    return claim(f"{text.format(found)} (aim {aim:g})", every, held=found.median >= aim)
