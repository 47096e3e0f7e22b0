"""The leg `peers`: our worker against workers that a team would write instead (`peers/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import orjson

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.wiring.loaded_tasks import Model
from enricher.workshop.gate.scoring import EntitySpan, count_by_text, total
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.outcome import Claim, Outcome, Plot, Table
from tools.bench.peers.line_up import DTYPES, LineUp, Peer, start
from tools.bench.peers.processes import PeerFailed
from tools.bench.peers.transfer import Options, Route
from tools.bench.repeating import Run, bars, others, rates, ratios
from tools.bench.watching import run_worker
from tools.reading import Reader
from tools.topics import Topics
from tools.waiting import wait_until
from tools.worker_parts import tasks_of

ABOUT = (
    "Workers that a team would write instead, with the same weights: ONNX Runtime in the worker's process, the same model "
    "behind FastAPI, DJL on the JVM, and on PyTorch the Hugging Face pipeline, TorchScript and torch.compile. Each works "
    "from Kafka to Kafka with one transaction per poll, cuts "
    "nothing, writes the same JSON, and runs with the options that are fastest here. Articles per second, from the first "
    "record read to the last commit."
)

MIXES: tuple[Mix, ...] = ("news", "mixed")
BLOCK = 20
SEED = 6
"""With this seed the mixed block of 20 has 12 headlines, 6 news articles and 2 long reads: exactly the mix's shares."""
RUN_S = 3.0
"""Approximate duration of a run; each contender repeats the same block of articles that long."""
OURS = "ours"
OURS_IN = "ours, in {}"
"""Our slower precisions, of those that PyTorch is measured in."""
SHORT = 40
"""Number of headlines on which peers must agree with ours: with one window each, the task is the same for all."""
SAME_IF_SHORT, SAME_IF_LONG = 0.98, 0.8
"""Least F1 of a peer's entities against ours; below it, the peer does different work. Long articles are cut at other
positions, which the embedded model is sensitive to: against itself ours has 0.93 with 32 tokens of overlap instead of 16,
and 0.84 with windows of 512 instead of 128."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker's results on one mix: its best options, the rates of all options tried, and its runs."""

    way: Options
    tried: Sequence[tuple[Options, float]]
    laps: int
    runs: Sequence[Run]


Written = Mapping[str, set[EntitySpan]]
"""Content of the output topic: the entities of each article by id."""
VISIBLE_S = 5.0
"""How long to wait until everything that was committed is visible."""
Contest = dict[str, Standing]
"""Standings of one mix by worker, ours first."""
Contests = dict[Mix, Contest]


def measure(bench: Bench) -> Outcome:
    checkpoint = bench.model.prepared.checkpoint
    if isinstance(checkpoint, OnnxModel):
        why = "not measured: the peers run a checkpoint, that is a folder with weights, and this is an ONNX model"
        return Outcome({"not_measured": why}, [Table("Other workers", ("",), [(why,)])])
    with ExitStack() as closing:
        line_up = start(bench, checkpoint, closing)
        short = _short(bench, line_up)
        contests = {mix: _contest(bench, mix, line_up, _ours(bench)) for mix in MIXES}
    name = f"{OURS} ({bench.model.prepared.variant.name})"
    return Outcome(
        figures={mix: _figures(contest) for mix, contest in contests.items()}
        | {"same_entities_f1_in_headlines": short, "missing": line_up.missing},
        tables=[_table(mix, contest, line_up.missing, name) for mix, contest in contests.items()],
        plots=[_plot(contests, name)],
        claims=[_same_work(contests, short)],
    )


# ---- running


def _short(bench: Bench, line_up: LineUp) -> dict[str, float]:
    """F1 of each peer's entities against ours in headlines. Also warms each peer up; one that fails is left out."""
    bench.say("comparing what is found in headlines")
    values = articles("headlines", SHORT)
    ours, found = run_ours(bench, bench.model, values), dict[str, float]()
    for peer in tuple(line_up.peers):
        try:
            found[peer.name] = _same(run_peer(bench, peer, peer.ways[0], values), ours)
        except PeerFailed as error:
            line_up.leave_out(peer, str(error))
    return found


def _ours(bench: Bench) -> dict[str, Model]:
    """Our models: the variant that the settings choose, and the slower precisions that run here too."""
    own = {OURS: bench.model}
    for precision in DTYPES[bench.model.prepared.device]:
        with suppress(ModelError):  # bf16 where the processor has no units, fp16 without a report of the quality gate
            if (model := bench.model_in(precision)) is not bench.model:
                own[OURS_IN.format(precision)] = model
    return own


def _contest(bench: Bench, mix: Mix, line_up: LineUp, own: Mapping[str, Model]) -> Contest:
    """Find the best options of each worker, then let them take turns."""
    block = articles(mix, BLOCK, seed=SEED)
    tried = {peer.name: _try_out(bench, mix, peer, block) for peer in line_up.peers}
    ways = {name: max(rows, key=lambda row: row[1])[0] for name, rows in tried.items()}
    best = {name: max(rate for _, rate in rows) for name, rows in tried.items()}
    for name, model in own.items():
        run_ours(bench, model, block)  # warms up
        best[name] = run_ours(bench, model, block).rate
    laps = {name: 1 if bench.quick else max(1, round(RUN_S * rate / BLOCK)) for name, rate in best.items()}
    contenders = {name: partial(run_ours, bench, model, laps_of(block, laps[name])) for name, model in own.items()} | {
        peer.name: partial(run_peer, bench, peer, ways[peer.name], laps_of(block, laps[peer.name]))
        for peer in line_up.peers
    }
    runs = bench.interleave(contenders, mix)
    return {name: Standing(ways.get(name, {}), tried.get(name, ()), laps[name], each) for name, each in runs.items()}


def _try_out(bench: Bench, mix: Mix, peer: Peer, block: Sequence[bytes]) -> list[tuple[Options, float]]:
    """The rate with each set of options, from one short run, after a shorter one that warms the peer up."""
    ways = peer.ways[:1] if bench.quick else peer.ways
    rows = []
    for way in ways:
        bench.say(f"{mix}: {peer.name}: trying {_text_of(way)}")
        if mix == MIXES[0]:
            run_peer(bench, peer, way, block[:2])
        rows.append((way, run_peer(bench, peer, way, block).rate))
    return rows


# ---- report


def _text_of(way: Options) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in way.items() if name != "url" and value)


def _agreement(standing: Standing, ours: Standing) -> float:
    return _same(standing.runs[-1], ours.runs[-1])


def _same(run: Run, ours: Run) -> float:
    """F1 of a run's entities against ours on common articles: 1 if all spans and labels are equal."""
    theirs, reference = run.detail["written"], ours.detail["written"]
    ids = sorted(theirs.keys() & reference.keys())
    return total(count_by_text([theirs[each] for each in ids], [reference[each] for each in ids])).f1


def _figures(contest: Contest) -> dict[str, Any]:
    ours = contest[OURS]
    return {
        name: {
            "articles_per_s": rates(each.runs),
            "ours_over_this": ratios(ours.runs, each.runs),
            "articles_per_run": each.laps * BLOCK,
            "same_entities_f1": _agreement(each, ours),
            "way": _without_url(each.way),
            "tried": [{"way": _without_url(way), "articles_per_s": rate} for way, rate in each.tried],
            "others_cores_at_most": others(each.runs),
        }
        for name, each in contest.items()
    }


def _without_url(way: Options) -> Options:
    return {name: value for name, value in way.items() if name != "url"}


def _table(mix: Mix, contest: Contest, missing: Mapping[str, str], ours_name: str) -> Table:
    ours = contest[OURS]
    rows = [
        (
            ours_name if name == OURS else name,
            _text_of(each.way),
            f"{rates(each.runs)}",
            f"{ratios(ours.runs, each.runs)}",
            f"{_agreement(each, ours):.3f}",
        )
        for name, each in contest.items()
    ]
    rows += [(name, why, "", "", "") for name, why in missing.items()]
    columns = ("worker", "its best options", "articles/s", "ours / this", "same entities (F1)")
    note = f"Median, lowest and highest. A block of {BLOCK} articles, repeated for about {RUN_S} s."
    return Table(f"Other workers: {mix}", columns, rows, note)


def _plot(contests: Contests, ours_name: str) -> Plot:
    names = list(contests[MIXES[0]])
    series = []
    for mix, contest in contests.items():
        spreads = [rates(contest[name].runs) for name in names]
        shown = [ours_name if name == OURS else name for name in names]
        series.append(bars(mix, shown, spreads))
    return Plot("peers", "Workers that a team would write instead", "barh", "articles/s", "", series)


def _same_work(contests: Contests, short: Mapping[str, float]) -> Claim:
    long = {name: min(_agreement(contest[name], contest[OURS]) for contest in contests.values()) for name in short}
    least_short, least_long = min(short.values()), min(long.values())
    text = (
        f"every peer does the same work: a record for each article in every run, and our entities: F1 of {least_short:.3f} "
        f"where an article is one window (aim {SAME_IF_SHORT}), {least_long:.3f} where it is cut (aim {SAME_IF_LONG})"
    )
    return Claim(text, held=least_short >= SAME_IF_SHORT and least_long >= SAME_IF_LONG)


# ---- one run, and what it wrote


class Incomplete(RuntimeError):
    """A worker did not write exactly one record per article, so it cannot be compared."""


def laps_of(values: Sequence[bytes], laps: int) -> list[bytes]:
    """The same articles several times, with unique ids."""
    articles = [orjson.loads(value) for value in values]
    return [orjson.dumps(each | {"id": f"{each['id']}@{lap}"}) for lap in range(laps) for each in articles]


def run_ours(bench: Bench, model: Model, values: Sequence[bytes]) -> Run:
    """Our worker over a backlog, with this model; the rate is from its first read to its last commit."""
    with bench.topics(values) as topics:
        settings = bench.settings_for(topics)
        run = run_worker(bench, settings, tasks_of(settings, model), len(values))
        return replace(run, detail={"written": _read_written(topics, values)})


def run_peer(bench: Bench, peer: Peer, way: Options, values: Sequence[bytes]) -> Run:
    """Run a peer on the same backlog, timed by the same rule."""
    with bench.topics(values) as topics:
        meter = bench.meter()
        done = peer.process.ask(**order(topics, way, len(values)))
        load = meter.read()
        detail = {"written": _read_written(topics, values)}
    return Run(len(values) / done["working_s"], load, detail)


def order(topics: Topics, options: Options, articles: int) -> dict[str, Any]:
    """The order to process so many articles of the input topic."""
    route = Route(topics.bootstrap_servers, topics.group, topics.input, topics.output)
    return {"route": asdict(route), "options": options, "articles": articles}


def _read_written(topics: Topics, values: Sequence[bytes]) -> Written:
    """The committed records. Raises Incomplete unless it is one record per article.

    A commit returns before brokers have ended the transaction in every partition, so the last records become visible later.
    """
    records = list[dict[str, Any]]()

    def is_complete() -> bool:
        records[:] = records_in(topics)
        return len(records) >= len(values)

    wait_until(is_complete, VISIBLE_S)
    return check_records(records, [orjson.loads(value)["id"] for value in values])


def records_in(topics: Topics) -> list[dict[str, Any]]:
    """Read all committed records of the output topic."""
    messages = Reader(topics.bootstrap_servers, topics.group).records(topics.output)
    return [orjson.loads(message.value() or b"{}") for message in messages]


def check_records(records: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> Written:
    """The records by id. Raises Incomplete unless there is exactly one for each of `ids`."""
    written = {record["id"]: {_span(entity) for entity in record["entities"]} for record in records}
    if len(records) != len(written) or written.keys() != set(ids):
        raise Incomplete(f"{len(records)} records ({len(written)} different) for {len(ids)} articles")
    return written


def _span(entity: Mapping[str, Any]) -> EntitySpan:
    return EntitySpan(entity["field"], entity["start"], entity["end"], entity["label"])
