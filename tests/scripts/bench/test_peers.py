"""The peers of the bench do the whole job, and one that does not is detected."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from support.models import MINILM_FOLDER, open_minilm
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.workshop.gate.scoring import EntitySpan
from tools import SCRIPTS
from tools.bench.child import Child, ChildFailed
from tools.bench.legs.peers import (
    SEED,
    Contender,
    Incomplete,
    Plan,
    _contest,
    _grown,
    check_records,
    laps_of,
    records_in,
)
from tools.bench.load import articles
from tools.bench.machine import Load
from tools.bench.outcome import Row
from tools.bench.peers import line_up
from tools.bench.peers.line_up import (
    COMPILED,
    PIPELINE,
    LineUp,
    Peer,
    Places,
    djl_launcher,
    export_peer,
    on_a_cpu,
    on_a_gpu,
    torch_python,
)
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.records import Found, Span, encode, text_of
from tools.bench.peers.results import OURS, RANDOM, outcome
from tools.bench.peers.transfer import Options, Route
from tools.bench.peers.window_model import TOKENIZERS, Windows
from tools.bench.repeating import Run

ARTICLE_VALUE = b'{"id": "1"}'
LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
CARD = {"name": "m", "digest": "d", "precision": "fp32"}
ARTICLE = {"id": "1", "title": "Angela Merkel", "body": "Angela Merkel met Emmanuel Macron in Paris.", "language": "en"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, exported for the peers."""
    made = tmp_path_factory.mktemp("peers") / MINILM_FOLDER.name
    return export_peer(open_minilm(), made)


@pytest.fixture
def windows() -> Windows:
    """Short windows, so that a short text has several."""
    return Windows(MINILM_FOLDER, LABELS, window_tokens=12, overlap_tokens=4)


def test_a_record_has_our_fields_and_offsets_count_in_their_own_field() -> None:
    """The single text is split into title and body again."""
    start = text_of(ARTICLE).index("Macron")
    found = Found([Span(0, 6, "PER", 0.99), Span(start, start + 6, "PER", 0.5)], {"truncated": False})
    record = orjson.loads(encode(ARTICLE, found, CARD))
    assert {"schema_version", "id", "language", "entities", "model", "coverage"} == record.keys()
    first, second = record["entities"]
    assert ("title", "Angela") == (first["field"], ARTICLE["title"][first["start"] : first["end"]])
    assert ("body", "Macron") == (second["field"], ARTICLE["body"][second["start"] : second["end"]])


def test_batches_as_polled_find_what_single_articles_do(folder: Path) -> None:
    """Batching changes the time, not the entities, and nothing of a long text is cut off."""
    model = OnnxModel(folder, window_tokens=128, overlap_tokens=16, threads=1, callers=2)
    texts = [text_of(orjson.loads(value))[:6_000] for value in articles("mixed", 3, seed=SEED)]
    single, together = model.find(texts), model.find(texts, windows_per_run=3)
    places = [[(span.start, span.end, span.label) for span in found.spans] for found in single]
    assert places == [[(span.start, span.end, span.label) for span in found.spans] for found in together]
    assert any(found.coverage["windows"] > 10 for found in single)
    assert all(
        any(span.end > 0.9 * len(text) for span in found.spans)
        for text, found in zip(texts, single, strict=True)
        if len(text) == 6_000
    )


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The model behind HTTP; yields its address."""
    with Child("tools.bench.peers.http", "server", folder, 128, 16, "cpu", 1) as process:
        yield process.hear()["url"]


@pytest.mark.broker
def test_the_peers_write_one_record_per_article(
    folder: Path, server: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two peers work in turn on the same topics: the second continues where the first stopped."""
    values = laps_of(articles("headlines", 6), 2)
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers})
    for value in values:
        producer.produce(topics.input, value)
    producer.flush(PATIENCE_S)
    route = asdict(Route(topics.bootstrap_servers, topics.group, topics.input, topics.output))
    with (
        Child("tools.bench.peers.onnx_worker", folder, 128, 16, "cpu") as in_process,
        Child("tools.bench.peers.http", "worker", folder) as over_http,
    ):
        way = {"callers": 1, "threads": 1, "windows_per_run": 4}
        done = in_process.ask(route=route, options=way, articles=len(values))
        assert (len(values), True) == (done["articles"], done["working_s"] > 0)
        producer.produce(topics.input, orjson.dumps(ARTICLE))
        producer.flush(PATIENCE_S)
        done = over_http.ask(route=route, options={"url": server, "requests_at_once": 2}, articles=1)
        assert (1, 1) == (done["articles"], done["transactions"])
    for name, setting in topics.environment.items():
        monkeypatch.setenv(name, setting)
    written = check_records(records_in(topics), [*(orjson.loads(value)["id"] for value in values), "1"])
    assert {EntitySpan("body", 0, 13, "PER"), EntitySpan("body", 18, 33, "PER")} <= written["1"]


def test_punctuation_around_an_entity_makes_no_difference() -> None:
    """A tokenizer that splits at spaces alone leaves a comma on a word; random weights also find bare commas."""
    place = {"field": "body", "label": "LOC"}
    entities = [place | {"start": 10, "end": 16, "text": "(Rome,"}, place | {"start": 16, "end": 17, "text": ","}]
    written = check_records([{"id": "a", "entities": entities}], ["a"])
    assert {"a": {EntitySpan("body", 11, 15, "LOC")}} == written


def test_a_worker_that_leaves_something_out_or_repeats_it_is_found_out() -> None:
    """Negative control: missing and repeated records are detected."""
    one, two = ({"id": name, "entities": []} for name in "ab")
    assert {"a": set(), "b": set()} == check_records([one, two], ["a", "b"])
    for records in ([one], [one, one], [one, two, two]):
        with pytest.raises(Incomplete):
            check_records(records, ["a", "b"])


# ---- what starts, and what is missing


PLACE = (128, 16, "cpu")


def lined_up(tmp_path: Path, closing: ExitStack, places: Places) -> LineUp:
    """One that has started nothing yet."""
    return LineUp(places, (128, 16), tmp_path, closing)


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (on_a_cpu(), [name.format(each) for each in ("fp32", "bf16") for name in (PIPELINE, COMPILED)]),
        (on_a_gpu("cuda:0", dry=False), [PIPELINE.format("fp16"), COMPILED.format("fp16")]),
        (on_a_gpu("cpu", dry=True), [PIPELINE.format("fp32"), COMPILED.format("fp32")]),
    ],
)
def test_without_pytorch_each_of_its_peers_is_missing_by_name(
    places: Places, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The precisions are those of the device; a dry run has no float16."""
    monkeypatch.setattr(line_up, "torch_python", lambda: "not measured: PyTorch is not installed")
    with ExitStack() as closing:
        here = lined_up(tmp_path, closing, places)
        here.on_pytorch(tmp_path)
    assert dict.fromkeys(names, "not measured: PyTorch is not installed") == here.missing
    assert [] == here.peers


def test_a_peer_that_cannot_work_here_is_left_out_and_says_why(tmp_path: Path) -> None:
    """The others stay."""
    with ExitStack() as closing:
        here = lined_up(tmp_path, closing, on_a_cpu())
        names = {"broken": "tools.bench.peers.none", "whole": "tools.bench.peers.transfer"}
        here.peers += [Peer(name, closing.enter_context(Child(program)), [{}]) for name, program in names.items()]
        broken, whole = here.peers
        with pytest.raises(ChildFailed) as failure:
            broken.process.hear()
        here.leave_out(broken, failure.value.why)
    assert [whole] == here.peers
    assert here.missing["broken"].startswith("not measured: ")
    assert "No module named" in here.missing["broken"]


def test_a_peer_that_does_not_answer_in_time_is_ended() -> None:
    """Nothing was asked, so the loop says nothing."""
    with Child("tools.bench.peers.transfer") as silent:
        silent.limit_s = 0.05
        with pytest.raises(ChildFailed, match="no answer within"):
            silent.hear()


def test_a_library_that_loses_windows_is_refused_by_its_version(
    monkeypatch: pytest.MonkeyPatch, windows: Windows
) -> None:
    """As tokenizers 0.23.2 does; the version that is named is the locked one."""
    assert f"tokenizers=={TOKENIZERS} " in (SCRIPTS / "locked" / "development.txt").read_text()
    whole = windows.of
    monkeypatch.setattr(Windows, "of", lambda _, texts: [[each[0]] for each in whole(texts)])
    with pytest.raises(SystemExit, match=f"loses windows of long texts.* install tokenizers=={TOKENIZERS}"):
        Windows(MINILM_FOLDER, LABELS, window_tokens=12, overlap_tokens=4)


# ---- turns


def contender(*took_s: float, compilations: Sequence[int] = ()) -> tuple[Contender, list[int]]:
    """One whose lap takes as many seconds as given, run by run, the last for ever; and the laps that it was asked for."""
    laps = list[int]()

    def run(_way: Options, values: Sequence[bytes]) -> Run:
        laps.append(len(values))
        number = len(laps) - 1
        compiled = compilations[number] if number < len(compilations) else 0
        rate = 1 / took_s[min(number, len(took_s) - 1)]
        return Run(rate, Load(1.0, 0.0, 0.0), {"compilations": compiled})

    return Contender("one", run), laps


def test_a_turn_grows_until_it_is_long_enough() -> None:
    """A lap of 50 ms is repeated until a run takes five seconds; each time ten times as often at most."""
    one, laps = contender(0.05)
    run = _grown(one, {}, [ARTICLE_VALUE], 1, 5.0)
    assert [1, 10, 100] == laps
    assert 20.0 == pytest.approx(run.rate)


def test_a_contender_that_always_compiles_is_no_measurement() -> None:
    """It is left out with the reason."""
    one, _ = contender(6.0, compilations=[1] * 99)
    with pytest.raises(ChildFailed, match="compiled something"):
        _grown(one, {}, [ARTICLE_VALUE], 1, 5.0)


def test_a_peer_for_which_no_time_is_left_is_named_instead_of_measured(tmp_path: Path) -> None:
    """The worker is measured, or there would be nothing to compare."""
    ours, laps = contender(0.1)
    bench: Any = SimpleNamespace(say=lambda _: None)
    plan = Plan(on_a_gpu("cpu", dry=True), ("news",), turns=3, dry=True, ends_s=time.monotonic())
    process: Any = None
    with ExitStack() as closing:
        here = lined_up(tmp_path, closing, plan.places)
        here.peers.append(Peer("late", process, [{}]))
        standings = _contest(bench, "news", [ours], [ARTICLE_VALUE], plan, here)
    assert {"one": 1} == {name: len(each.runs) for name, each in standings.items()}
    assert [1, 1, 1] == laps, "it warms up, tries its options, and has one turn"
    assert {"late": "not measured: no time left"} == here.missing


# ---- rows


MEASURED: Row = {
    "model": "newswire-e5",
    "shape": "6 x 384",
    "variant": "packed-fp16",
    "mix": "news",
    "worker": OURS,
    "options": "",
    "articles_per_s": 1800.0,
    "lowest_per_s": 1700.0,
    "highest_per_s": 1900.0,
    "windows_a_day": 1.5e9,
    "ours_over_this": 1.0,
    "turns": 3,
    "same_entities_f1": 1.0,
    "in_headlines_f1": None,
}
SLOWER = MEASURED | {
    "worker": "torch.compile, fp16",
    "articles_per_s": 90.0,
    "ours_over_this": 20.0,
    "same_entities_f1": 0.91,
    "in_headlines_f1": 0.99,
}
NAMES = ("model", "shape", "variant", "mix")
ABSENT = {name: MEASURED[name] for name in NAMES} | {"worker": "none", "not_measured": "no PyTorch"}


@pytest.mark.parametrize(("changed", "held"), [({}, True), ({"in_headlines_f1": 0.9}, False)])
def test_a_peer_with_other_entities_breaks_the_claim(changed: Row, *, held: bool) -> None:
    """The random weights of a large model have no aim: rounding decides their labels."""
    rows = [MEASURED, SLOWER | changed, ABSENT, SLOWER | {"model": f"{RANDOM}x", "in_headlines_f1": 0.1}]
    assert [held] == [claim.held for claim in outcome(rows).claims]


# ---- peers on the JVM and on PyTorch find what ONNX Runtime in Python does, from topic to topic


Records = dict[str, dict[str, Any]]
"""Records by id."""
BEYOND_16_BITS = {
    "id": "\U0001f68b",
    "title": "\U0001f68b Angela Merkel",
    "body": "\U0001f68b Zoë met Emmanuel Macron.",
}
VALUES = [orjson.dumps(BEYOND_16_BITS), *articles("headlines", 4), *articles("news", 6)[4:]]
"""The last two are cut into several windows."""
WAYS: tuple[Options, ...] = (
    {"callers": 2, "threads": 1, "windows_per_run": None},
    {"callers": 1, "threads": 2, "windows_per_run": 3},
)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Records:
    """The records of the peer in Python, by id."""
    model = OnnxModel(folder, window_tokens=128, overlap_tokens=16, threads=1)
    read = [orjson.loads(value) for value in VALUES]
    found = model.find([text_of(article) for article in read])
    records = [orjson.loads(encode(article, each, {})) for article, each in zip(read, found, strict=True)]
    return {record["id"]: record for record in records}


def written(process: Child, ways: Sequence[Options], topics: Topics) -> list[Records]:
    """Records by id, one dictionary for each way that `process` ran; without the model's name, which differs."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers})
    route = asdict(Route(topics.bootstrap_servers, topics.group, topics.input, topics.output))
    laps, size, runs = laps_of(VALUES, len(ways)), len(VALUES), [Records() for _ in ways]
    for number, way in enumerate(ways):
        for value in laps[number * size : (number + 1) * size]:
            producer.produce(topics.input, value)
        producer.flush(PATIENCE_S)
        done = process.ask(route=route, options=way, articles=size)
        assert (size, True) == (done["articles"], done["working_s"] > 0)
    for record in records_in(topics):
        name, _, lap = record["id"].rpartition("@")
        runs[int(lap)][name] = record | {"id": name, "model": {}}
    return runs


def without_scores(records: Records) -> Records:
    """Kernels differ in the last digit of a score."""
    bare = orjson.loads(orjson.dumps(records))
    for record in bare.values():
        for entity in record["entities"]:
            del entity["score"]
    return bare  # type: ignore[no-any-return]  # as it was


@pytest.fixture
def settings_of_topics(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Topics that the settings name."""
    for name, setting in topics.environment.items():
        monkeypatch.setenv(name, setting)
    return topics


@pytest.mark.long
@pytest.mark.broker
def test_djl_writes_the_records_of_the_peer_in_python(
    folder: Path, expected: Records, settings_of_topics: Topics, tmp_path: Path
) -> None:
    """Article by article and in batches; offsets count code points, which are not Java's characters."""
    with Child("DjlWorker", folder, *PLACE, launcher=djl_launcher(tmp_path)) as process:
        runs = written(process, WAYS, settings_of_topics)
    assert [without_scores(expected)] * 2 == [without_scores(run) for run in runs]
    assert {"Angela Merkel", "Emmanuel Macron"} <= {each["text"] for each in runs[0]["\U0001f68b"]["entities"]}


@pytest.mark.broker
@pytest.mark.long
def test_a_compiled_model_writes_them_too(expected: Records, settings_of_topics: Topics, tmp_path: Path) -> None:
    """In graphs for all batches and lengths; the first run compiles and says so."""
    python = torch_python()
    if isinstance(python, str):
        pytest.skip(python)
    worker, launcher = "tools.bench.peers.torch_worker", (python.path, "-m")
    with Child(worker, MINILM_FOLDER, *PLACE, "float32", "compiled", tmp_path, launcher=launcher) as process:
        runs = written(process, WAYS, settings_of_topics)
    assert [without_scores(expected)] * 2 == [without_scores(run) for run in runs]
