"""The leg `peers`: our worker against workers that a team would write instead (`peers/`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from enricher.errors import ModelError
from enricher.worker.build.loaded_model import Model
from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.workshop.gate.scoring import count_by_text, total
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.machine import processor
from tools.bench.outcome import Claim, Outcome, Plot, Table
from tools.bench.peers.contenders import Peer, laps_of, run_ours, run_peer
from tools.bench.peers.line_up import DTYPES, IN_PROCESS, OVER_HTTP, PIPELINE, LineUp, start
from tools.bench.peers.orders import Options
from tools.bench.peers.processes import PeerFailed
from tools.bench.repeating import Run, bars, others, rates, ratios

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
INT8_OVER_BF16 = 1.3
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
    name, on_cpu = f"{OURS} ({bench.model.prepared.variant.name})", bench.model.prepared.device == "cpu"
    return Outcome(
        figures={mix: _figures(contest) for mix, contest in contests.items()}
        | {"same_entities_f1_in_headlines": short, "missing": line_up.missing},
        tables=[_table(mix, contest, line_up.missing, name) for mix, contest in contests.items()],
        plots=[_plot(contests, name)],
        claims=[_same_work(contests, short), *(_faster(contests, bench.model.card.precision) if on_cpu else ())],
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


# ---- aims


def _same_work(contests: Contests, short: Mapping[str, float]) -> Claim:
    long = {name: min(_agreement(contest[name], contest[OURS]) for contest in contests.values()) for name in short}
    least_short, least_long = min(short.values()), min(long.values())
    text = (
        f"every peer does the same work: a record for each article in every run, and our entities: F1 of {least_short:.3f} "
        f"where an article is one window (aim {SAME_IF_SHORT}), {least_long:.3f} where it is cut (aim {SAME_IF_LONG})"
    )
    return Claim(text, held=least_short >= SAME_IF_SHORT and least_long >= SAME_IF_LONG)


def aims(precision: str, processor_text: str) -> dict[tuple[Mix, tuple[str, ...]], float]:
    """The aimed ratio of our rate to the best of some workers', for this processor and precision."""
    if precision == "bf16" and "amx_bf16" in processor_text:
        return {
            ("news", IN_PROCESS): 3.5,
            ("news", (PIPELINE.format("fp32"),)): 5.0,
            ("news", (PIPELINE.format("bf16"),)): 2.0,
            ("news", (OVER_HTTP,)): 4.5,
        }
    if precision == "fp32":
        return {("news", IN_PROCESS): 1.0, ("mixed", IN_PROCESS): 1.15}
    return {}


def _faster(contests: Contests, precision: str) -> list[Claim]:
    """The aims are for processors: on a GPU there are none."""
    own = {each: OURS_IN.format(each) for each in DTYPES["cpu"]} | {precision: OURS}
    bf16 = own["bf16"]
    claims = [_int8(mix, contest, bf16) for mix, contest in contests.items() if precision == "int8" and bf16 in contest]
    for ours_in, ours in own.items():
        for (mix, names), aim in aims(ours_in, processor()).items():
            contest = contests[mix]
            if present := [name for name in names if name in contest]:
                best = max(present, key=lambda name: rates(contest[name].runs).median)
                times = ratios(contest[ours].runs, contest[best].runs)
                text = f"ours in {ours_in} is {times} times as fast as {best}, {mix} (aim {aim})"
                claims.append(Claim(text, held=times.median >= aim))
    return claims


def _int8(mix: Mix, contest: Contest, bf16: str) -> Claim:
    times = ratios(contest[OURS].runs, contest[bf16].runs)
    return Claim(f"int8 is {times} times as fast as bf16, {mix} (aim {INT8_OVER_BF16})", times.median >= INT8_OVER_BF16)
