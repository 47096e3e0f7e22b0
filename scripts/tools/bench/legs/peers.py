"""The leg `peers`: our worker against workers that a team would write instead (`peers/`), and what each run wrote.

`compare` yields rows, which `peers/results.py` makes tables of. On a GPU it is a step of `scripts/bench gpu`.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import orjson

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.records import Batch
from enricher.worker.wiring.loaded_tasks import Model, batch_rules, window_cutter
from enricher.workshop.gate.scoring import EntitySpan, count_by_text, total
from tools.bench.bench import Bench
from tools.bench.child import ANSWER_S, ChildFailed
from tools.bench.legs.limit import run_bare
from tools.bench.load import Mix, articles, laps_of
from tools.bench.outcome import Outcome, Row, Table
from tools.bench.peers.line_up import LineUp, Peer, Places, on_a_cpu
from tools.bench.peers.results import BARE, OURS, outcome
from tools.bench.peers.transfer import Options, Route
from tools.bench.runs import Run, others, quiet, rates, ratios
from tools.bench.watching import run_worker
from tools.reading import Reader
from tools.topics import Topics
from tools.waiting import wait_until
from tools.worker_parts import decode_article, in_order_of_arrival, packed_batches, windows_of

ABOUT = (
    "Workers that a team would write instead, with the same weights: ONNX Runtime in the worker's process, the same model "
    "behind FastAPI, DJL on the JVM, and on PyTorch the Hugging Face pipeline and torch.compile. Each works "
    "from Kafka to Kafka with one transaction per poll, cuts "
    "nothing, writes the same JSON, and runs with the options that are fastest here. Articles per second, from the first "
    "record read to the last commit."
)

BLOCK = 20
SEED = 6
"""With this seed the mixed block of 20 has 12 headlines, 6 news articles and 2 long reads: exactly the mix's shares."""
TURN_S, TRY_S = 5.0, 1.0
"""Least durations of a turn, and of a run that tries options; the block is repeated that often. On a GPU a block alone takes
50 ms, which measures nothing."""
SPARE = 1.3
"""A turn is planned that much longer: the rate of a short run is low, since its start and end weigh more."""
GROWTHS = 8
"""Runs until one is long enough: a block of 20 ms becomes one of 5 s in four."""
WARM_UP_SHARE = 0.5
"""The share of a model's time for loading, compiling and the first articles, which all peers do at once."""
OURS_IN = "ours, in {}"
"""Our slower precisions, of those that PyTorch is measured in."""
SHORT = 40
"""Number of headlines on which peers must agree with ours: with one window each, the task is the same for all."""
VISIBLE_S = 5.0
"""How long to wait until everything that was committed is visible."""
_DAY_S = 86_400

Written = Mapping[str, set[EntitySpan]]
"""Content of the output topic: the entities of each article by id."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `dry`: one block a turn, which measures nothing. `ends_s`: monotonic; no turn begins after it."""

    places: Places
    mixes: Sequence[Mix]
    turns: int
    dry: bool
    with_bare_engine: bool = False
    ends_s: float = math.inf

    @property
    def left_s(self) -> float:
        return self.ends_s - time.monotonic()

    def least_s(self, seconds: float) -> float:
        return 0.0 if self.dry else seconds


@dataclass(frozen=True, slots=True)
class Contender:
    """A worker, or the bare engine: `run` does these articles with one of the `ways`."""

    name: str
    run: Callable[[Options, Sequence[bytes]], Run]
    ways: Sequence[Options] = ({},)


@dataclass(frozen=True, slots=True)
class Standing:
    """One contender's results on one mix: its best options, the rates of all options tried, and its turns."""

    way: Options
    tried: Sequence[tuple[Options, float]]
    laps: int
    """Of the first turn; a turn that is too short is repeated with more."""
    runs: Sequence[Run]


def measure(bench: Bench) -> Outcome:
    """On a CPU."""
    if isinstance(bench.model.prepared.checkpoint, OnnxModel):
        why = "not measured: the peers run a checkpoint, that is a folder with weights, and this is an ONNX model"
        return Outcome({"not_measured": why}, [Table("Other workers", ("",), [(why,)])])
    own = {OURS: bench.model}
    for precision in on_a_cpu().torch:
        with suppress(ModelError):  # bf16 where the processor has no units
            if (model := bench.model_in(precision)) is not bench.model:
                own[OURS_IN.format(precision)] = model
    plan = Plan(on_a_cpu(), ("news", "mixed"), bench.repetitions, bench.quick)
    return outcome(list(compare(bench, own, plan)))


def compare(bench: Bench, own: Mapping[str, Model], plan: Plan) -> Iterator[Row]:
    """A row for each contender and mix when it is measured, and for each that is missing. `own`: ours first, by name."""
    model = own[OURS]
    cutter = window_cutter(bench.settings, model)
    with ThreadPoolExecutor() as pool, ExitStack() as closing:
        line_up = LineUp.empty(plan.places, (cutter.max_window_tokens, cutter.overlap_tokens), closing)
        short = _warm_up(bench, line_up, model, plan, pool)
        for mix in plan.mixes:
            block = articles(mix, BLOCK, seed=SEED)
            contenders = [Contender(name, partial(run_ours, bench, each)) for name, each in own.items()]
            if plan.with_bare_engine:
                contenders.append(Contender(BARE, partial(run_engine, bench, model)))
            contest = _contest(bench, mix, contenders, block, plan, line_up)
            for row in _rows(contest, short, line_up.missing):
                yield _names(model) | {"mix": mix} | row


# ---- running


def _say(bench: Bench, plan: Plan, text: str) -> None:
    bench.say(text if math.isinf(plan.left_s) else f"{max(0.0, plan.left_s):.0f} s left: {text}")


def _warm_up(bench: Bench, line_up: LineUp, model: Model, plan: Plan, pool: ThreadPoolExecutor) -> dict[str, float]:
    """F1 of each peer's entities against ours in headlines. One that fails is left out.

    The peers load and compile at once, those on PyTorch while the model is exported for the others.
    """
    values = articles("headlines", SHORT)

    def try_out(peer: Peer) -> Run | ChildFailed:
        try:
            return run_peer(bench, plan, peer, peer.ways[0], values, share=WARM_UP_SHARE)
        except ChildFailed as error:
            return error

    def begin(peers: Sequence[Peer]) -> dict[str, Future[Run | ChildFailed]]:
        return {peer.name: pool.submit(try_out, peer) for peer in peers}

    bench.cluster  # noqa: B018  started before several threads ask for it
    _say(bench, plan, "the peers load the model and compile")
    line_up.on_pytorch(model.prepared.checkpoint.folder)
    answers = begin(line_up.peers)
    line_up.on_an_export(model.prepared.checkpoint)
    answers |= begin(line_up.peers[len(answers) :])
    ours, found = run_ours(bench, model, {}, values), dict[str, float]()
    _say(bench, plan, "comparing what is found in headlines")
    for peer in tuple(line_up.peers):
        answer = answers[peer.name].result()
        if isinstance(answer, ChildFailed):
            line_up.leave_out(peer, answer.why)
        else:
            found[peer.name] = _same(answer, ours)
    return found


def _contest(
    bench: Bench, mix: Mix, own: Sequence[Contender], block: Sequence[bytes], plan: Plan, line_up: LineUp
) -> dict[str, Standing]:
    """Find the best options of each contender, then let them take turns. Peers that fail, or get no time, are left out."""
    peers = {peer.name: peer for peer in line_up.peers}
    contenders = [
        *own,
        *(Contender(name, partial(run_peer, bench, plan, peer), peer.ways) for name, peer in peers.items()),
    ]
    standings = dict[str, Standing]()

    def stand(name: str, what: str, found: Callable[[], Standing]) -> None:
        _say(bench, plan, f"{mix}: {name}: {what}")
        try:
            if name in peers and plan.left_s < TURN_S and not (name in standings and standings[name].runs):
                raise ChildFailed(name, "no time left")  # noqa: TRY301  left out as others are
            standings[name] = found()
        except ChildFailed as error:
            if name not in peers:
                raise
            standings.pop(name, None)
            line_up.leave_out(peers[name], error.why)

    for each in contenders:
        stand(each.name, "trying its options", partial(_try_options, each, block, plan))
    for number in range(plan.turns):
        # A round is begun if there is time for all of it, so that all have the same number of turns.
        if number and plan.left_s < 2 * TURN_S * len(standings):
            break
        for each in [contender for contender in contenders if contender.name in standings]:
            known = standings[each.name]
            stand(each.name, f"turn {number + 1}", partial(_turn, each, known, block, plan, bench.say))
    return standings


def _try_options(contender: Contender, block: Sequence[bytes], plan: Plan) -> Standing:
    """The best options by one run each, after one that warms up their shapes, and the laps of a turn at that rate."""
    tried = []
    for way in contender.ways[: 1 if plan.dry else None]:
        contender.run(way, laps_of(block, 1))
        tried.append((way, _grown(contender, way, block, 1, plan.least_s(TRY_S)).rate))
    way, rate = max(tried, key=lambda each: each[1])
    return Standing(way, tried, max(1, math.ceil(SPARE * plan.least_s(TURN_S) * rate / len(block))), [])


def _turn(
    contender: Contender, known: Standing, block: Sequence[bytes], plan: Plan, say: Callable[[str], None]
) -> Standing:
    turn = partial(_grown, contender, known.way, block, known.laps, plan.least_s(TURN_S))
    return replace(known, runs=[*known.runs, quiet(turn, 1 if plan.dry else plan.turns, say)])


def _grown(contender: Contender, way: Options, block: Sequence[bytes], laps: int, least_s: float) -> Run:
    """A run of at least `least_s` in which nothing was compiled: the block is repeated until it is that long.

    Raises ChildFailed if there is none.
    """
    for _ in range(GROWTHS):
        run = contender.run(way, laps_of(block, laps))
        seconds = laps * len(block) / run.rate
        if not run.detail.get("compilations") and seconds >= least_s:
            return run
        laps = max(laps, math.ceil(laps * min(10.0, SPARE * least_s / seconds)))
    raise ChildFailed(contender.name, f"{GROWTHS} runs were too short, or compiled something")


def _rows(contest: Mapping[str, Standing], short: Mapping[str, float], missing: Mapping[str, str]) -> Iterator[Row]:
    ours = contest[OURS]
    windows = ours.runs[-1].detail["windows"]
    for name, each in contest.items():
        rate, times = rates(each.runs), ratios(ours.runs, each.runs)
        yield {
            "worker": name,
            "options": _text_of(each.way),
            "articles_per_s": rate.median,
            "lowest_per_s": rate.low,
            "highest_per_s": rate.high,
            "articles_per_cpu_s": _per_cpu_s(each.runs),
            "windows_a_day": rate.median * windows * _DAY_S,
            "ours_over_this": times.median,
            "turns": len(each.runs),
            "same_entities_f1": None if name == BARE else _same(each.runs[-1], ours.runs[-1]),
            "in_headlines_f1": short.get(name),
            "others_cores": others(each.runs),
            "tried": "; ".join(f"{_text_of(way)}: {rate:.1f}/s" for way, rate in each.tried),
        }
    for name, why in missing.items():
        yield {"worker": name, "not_measured": why.removeprefix("not measured: ")}


def _per_cpu_s(runs: Sequence[Run]) -> float | None:
    """Articles per second of processor time, without the broker's; None for the bare engine."""
    if "articles" not in runs[0].detail:
        return None
    rates_by_run: list[float] = [run.detail["articles"] / (run.load.own_cores * run.load.seconds) for run in runs]
    return statistics.median(rates_by_run)


def _names(model: Model) -> Row:
    config = model.prepared.checkpoint.config
    return {
        "model": model.card.name,
        "shape": f"{config.layers} x {config.hidden_size:,}",
        "variant": model.prepared.variant.name,
    }


def _text_of(way: Options) -> str:
    named = ((name, value) for name, value in way.items() if name not in {"url", "poll_records"} and value)
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in named)


def _same(run: Run, ours: Run) -> float:
    """F1 of a run's entities against ours on common articles: 1 if all spans and labels are equal."""
    theirs, reference = run.detail["written"], ours.detail["written"]
    ids = sorted(theirs.keys() & reference.keys())
    return total(count_by_text([theirs[each] for each in ids], [reference[each] for each in ids])).f1


# ---- one run, and what it wrote


class Incomplete(RuntimeError):
    """A worker did not write exactly one record per article, so it cannot be compared."""


def run_engine(bench: Bench, model: Model, _way: Options, values: Sequence[bytes]) -> Run:
    """The bare engine on the windows of these articles, cut beforehand, in batches as large as the worker's."""
    cutter, limit = window_cutter(bench.settings, model), bench.settings.articles.max_article_chars
    decoded = [decode_article(value, max_article_chars=limit) for value in values[:BLOCK]]
    windows = [window for own in windows_of(model.tokenizer, cutter, decoded) for window in own]
    windows = sorted(windows * (len(values) // BLOCK), key=lambda window: window.length_tokens)
    batching = packed_batches if model.prepared.variant.packs else in_order_of_arrival
    batches = [Batch(tuple(each)) for each in batching(windows, batch_rules(bench.settings, model).max_batch_tokens)]
    return run_bare(model, batches, len(values))


def run_ours(bench: Bench, model: Model, _way: Options, values: Sequence[bytes]) -> Run:
    """Our worker over a backlog, with this model; the rate is from its first read to its last commit."""
    with bench.topics(values) as topics:
        run = run_worker(bench, model, bench.settings_for(topics), len(values))
        return replace(
            run,
            detail={
                "written": _read_written(topics, values),
                "windows": run.detail["windows"] / len(values),
                "articles": len(values),
            },
        )


def run_peer(bench: Bench, plan: Plan, peer: Peer, way: Options, values: Sequence[bytes], *, share: float = 1.0) -> Run:
    """Run a peer on the same backlog, timed by the same rule, in at most this share of the time that is left.

    Raises ChildFailed, also if a record is missing or double.
    """
    peer.process.limit_s = min(ANSWER_S, max(TURN_S, share * plan.left_s))
    with bench.topics(values) as topics:
        meter = bench.meter()
        done = peer.process.ask(**order(topics, way, len(values)))
        load = meter.read()
        try:
            detail = {
                "written": _read_written(topics, values),
                "compilations": done.get("compilations", 0),
                "articles": len(values),
            }
        except Incomplete as error:
            raise ChildFailed(peer.name, str(error)) from error
    return Run(len(values) / done["working_s"], load, detail)


def order(topics: Topics, options: Options, articles: int) -> dict[str, Any]:
    """The order to process so many articles of the input topic."""
    route = Route(topics.bootstrap_servers, topics.group, topics.input, topics.output)
    return {"route": asdict(route), "options": options, "articles": articles}


def _read_written(topics: Topics, values: Sequence[bytes]) -> Written:
    """The committed records of the first block. Raises Incomplete unless it is one record per article of all.

    A commit returns before brokers have ended the transaction in every partition, so the last records become visible later.
    """
    records, reader = list[dict[str, Any]](), Reader(topics.bootstrap_servers, topics.group)

    def is_complete() -> bool:
        records[:] = [orjson.loads(message.value() or b"{}") for message in reader.records(topics.output)]
        return len(records) >= len(values)

    wait_until(is_complete, VISIBLE_S)
    ids = [orjson.loads(value)["id"] for value in values]
    written = check_records(records, ids)
    return {each: written[each] for each in ids[: max(BLOCK, SHORT)]}


def check_records(records: Sequence[Mapping[str, Any]], ids: Iterable[str]) -> Written:
    """The entities by id of the record. Raises Incomplete unless there is exactly one record for each of `ids`."""
    written = {record["id"]: {*filter(None, map(_span, record["entities"]))} for record in records}
    expected = set(ids)
    if len(records) != len(written) or written.keys() != expected:
        raise Incomplete(f"{len(records)} records ({len(written)} different) for {len(expected)} articles")
    return written


_LETTERS = re.compile(r"\w(?:.*\w)?", re.DOTALL)


def _span(entity: Mapping[str, Any]) -> EntitySpan | None:
    """The entity without punctuation around it, None if it has nothing else.

    A tokenizer that splits at spaces alone, as that of newswire-e5 does, leaves commas on words, which ours does not.
    """
    found = _LETTERS.search(entity["text"])
    if found is None:
        return None
    start = entity["start"] + found.start()
    return EntitySpan(entity["field"], start, start + len(found[0]), entity["label"])
