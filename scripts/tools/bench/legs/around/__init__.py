"""The leg `around`: CPU cost of an article beside the model, by thread and by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby

from enricher.worker.build.loaded_model import window_cutter
from enricher.worker.build.workers import CHARS_PER_TOKENIZER_CALL
from enricher.worker.records import Partition, RawRecord, Ticket, TokenizedArticle, Window
from tools.bench.bench import Bench
from tools.bench.legs.around import reading
from tools.bench.legs.around.formats import format_costs, format_table
from tools.bench.legs.around.report import GPU_BATCH_TOKENS, Result, outcome
from tools.bench.load import Mix, articles
from tools.bench.machine import LoadMeter
from tools.bench.outcome import Outcome
from tools.bench.repeating import Run
from tools.bench.stages import REST, stage_times
from tools.bench.stubs import KnownAnswers
from tools.bench.watching import calls_of, work_off
from tools.decoding import decode_article

ABOUT = (
    "The worker, Kafka to Kafka, exactly once, with a model that answers at once from memory what the real one returned "
    "for the same windows: what remains is Python, the Kafka client and the tokenizer. CPU time of one core per article, "
    "thread by thread, so that waiting for the broker counts nothing. The loop's stages come from separate runs with "
    "clocks around its functions. Batches are those of this processor, and once more as large as a GPU gets them. What "
    "reading an article costs, by how it is written, is measured apart, without the broker."
)
_COUNTS: dict[Mix, int] = {"headlines": 20_000, "news": 43 * 60}
_QUICK_SHARE = 10
_DISTINCT = 1_720
"""Forty times the number of samples."""


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """Articles with recorded answers; a recorded article is published many times."""

    mix: Mix
    values: Sequence[bytes]
    answers: KnownAnswers
    texts: Sequence[str]


def measure(bench: Bench) -> Outcome:
    results = [_measure_mix(bench, known_load(bench, mix)) for mix in _COUNTS]
    found = outcome(results, [reading.measure(mix, bench.say, quick=bench.quick) for mix in _COUNTS])
    bench.say("encoding records in each format")
    costs = [format_costs(bench.settings, bench.model, mix, bench.repetitions) for mix in _COUNTS]
    figures = {**found.figures, "formats": {each.mix: each.figures() for each in costs}}
    return replace(found, figures=figures, tables=[*found.tables, format_table(costs)])


def known_load(bench: Bench, mix: Mix) -> KnownLoad:
    """Distinct articles, repeated often enough; the model is asked once per text."""
    bench.say(f"{mix}: asking the model once for each text")
    count = _COUNTS[mix] // (_QUICK_SHARE if bench.quick else 1)
    distinct = articles(mix, min(count, _DISTINCT))
    decoded = [decode_article(value, max_article_chars=bench.settings.articles.max_article_chars) for value in distinct]
    cutter = window_cutter(bench.settings, bench.model)

    def cut(tokens: TokenizedArticle) -> list[Window]:
        return cutter.cut(Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0), tokens, 0.0)

    answers = KnownAnswers(bench.model, {(each.title, each.body): each for each in decoded}.values(), cut)
    repeats = -(-count // len(distinct))
    return KnownLoad(mix, distinct * repeats, answers, [text for each in decoded for text in (each.title, each.body)])


def _measure_mix(bench: Bench, load: KnownLoad) -> Result:
    contenders = {
        "bare tokenizer": partial(_bare_tokenizer, bench, load),
        "worker": partial(_worker, bench, load),
        "worker, tokenizer from memory": partial(_worker, bench, load, tokenizer=False),
        "worker, with clocks": partial(_worker, bench, load, tokenizer=False, clocks=True),
        "worker, large batches": partial(_worker, bench, load, batch_tokens=GPU_BATCH_TOKENS),
        "worker, large batches, with clocks": partial(
            _worker, bench, load, tokenizer=False, clocks=True, batch_tokens=GPU_BATCH_TOKENS
        ),
    }
    return Result(load.mix, *bench.interleave(contenders, load.mix).values())


# ---- the contenders


def _bare_tokenizer(bench: Bench, load: KnownLoad) -> Run:
    """The tokenizer library alone on the same texts, in calls as large as the worker's."""
    backend = bench.model.tokenizer._backend  # noqa: SLF001  the very object that the worker calls
    meter, took_s = LoadMeter(), 0.0
    for texts in _calls(load.texts, CHARS_PER_TOKENIZER_CALL):
        began_s = time.thread_time()
        encodings = backend.encode_batch(texts, add_special_tokens=False)
        took_s += time.thread_time() - began_s
        del encodings  # freeing them is not part of the measured time
    return Run(len(load.texts) / 2 / took_s, meter.read())


def _calls(texts: Sequence[str], chars: int) -> Iterator[list[str]]:
    """Texts in calls of about `chars` characters, as the worker makes them."""
    ends = accumulate(map(len, texts))
    for _, call in groupby(zip(ends, texts, strict=True), key=lambda pair: pair[0] // chars):
        yield [text for _, text in call]


def _worker(
    bench: Bench, load: KnownLoad, *, tokenizer: bool = True, clocks: bool = False, batch_tokens: int | None = None
) -> Run:
    """The worker with a model from memory; with `tokenizer=False` also the tokenizer; with `clocks`, stages are timed."""
    batching = {} if batch_tokens is None else {"max_batch_tokens": batch_tokens}
    with ExitStack() as stack:
        stack.enter_context(load.answers.in_place_of_the_model())
        if not tokenizer:
            stack.enter_context(load.answers.in_place_of_the_tokenizer())
        topics = stack.enter_context(bench.topics(load.values))
        library = stack.enter_context(calls_of(bench.model.tokenizer, "_encode"))
        times = stack.enter_context(stage_times()) if clocks else None
        work = work_off(bench, bench.model, bench.settings_for(topics, batching=batching))
    assert work.counters.records == len(load.values), "every article has its record"
    stages = times.seconds() | {REST: max(0.0, work.loop_s - times.clocked_s)} if times else {}
    detail = {"work": work, "stages": stages, "library_s": sum(call.cpu_s for call in library)}
    return Run(work.counters.records / (work.loop_s + work.client_s), work.load, detail)
