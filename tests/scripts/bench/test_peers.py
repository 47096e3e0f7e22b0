"""The peers of the bench do the whole job, and one that does not is detected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka.harness import Sent, publish
from support.models import MINILM_FOLDER, open_minilm
from support.reading import read_all
from support.topics import Topics

from enricher.workshop.gate.scoring import EntitySpan
from tools import SCRIPTS
from tools.bench.child import Child, ChildFailed
from tools.bench.legs.peers import (
    Contender,
    Incomplete,
    _grown,
    check_records,
)
from tools.bench.load import articles
from tools.bench.peers import line_up
from tools.bench.peers.line_up import (
    COMPILED,
    PIPELINE,
    LineUp,
    Peer,
    djl_launcher,
    export_peer,
    on_a_cpu,
)
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.records import Found, Span, encode, text_of
from tools.bench.peers.results import RANDOM, claims
from tools.bench.peers.transfer import Options, Route
from tools.bench.peers.window_model import TOKENIZERS, Windows
from tools.bench.runs import Load, Run

ARTICLE_VALUE = b'{"id": "1"}'
LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
CARD = {"name": "m", "digest": "d", "precision": "fp32"}
ARTICLE = {"id": "1", "title": "Angela Merkel", "body": "Angela Merkel met Emmanuel Macron in Paris.", "language": "en"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, exported for the peers."""
    made = tmp_path_factory.mktemp("peers") / MINILM_FOLDER.name
    return export_peer(open_minilm(), made)


def test_a_record_has_our_fields_and_offsets_count_in_their_own_field() -> None:
    """The single text is split into title and body again."""
    start = text_of(ARTICLE).index("Macron")
    found = Found([Span(0, 6, "PER", 0.99), Span(start, start + 6, "PER", 0.5)], {"truncated": False})
    record = orjson.loads(encode(ARTICLE, found, CARD))
    assert {"schema_version", "id", "language", "entities", "model", "coverage"} == record.keys()
    first, second = record["entities"]
    assert ("title", "Angela") == (first["field"], ARTICLE["title"][first["start"] : first["end"]])
    assert ("body", "Macron") == (second["field"], ARTICLE["body"][second["start"] : second["end"]])


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


def test_without_pytorch_each_of_its_peers_is_missing_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The precisions are those of the device."""
    why = "not measured: PyTorch is not installed"
    monkeypatch.setattr(line_up, "torch_python", lambda: why)
    with ExitStack() as closing:
        here = LineUp(on_a_cpu(), (128, 16), tmp_path, closing)
        here.on_pytorch(tmp_path)
    names = [name.format(precision) for precision in ("fp32", "bf16") for name in (PIPELINE, COMPILED)]
    assert (dict.fromkeys(names, why), []) == (here.missing, here.peers)


def test_a_peer_that_cannot_work_here_is_left_out_and_says_why(tmp_path: Path) -> None:
    """The others stay."""
    with ExitStack() as closing:
        here = LineUp(on_a_cpu(), (128, 16), tmp_path, closing)
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


def test_a_library_that_loses_windows_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tokenizers 0.23.2 does; the version that is named is the locked one."""
    assert f"tokenizers=={TOKENIZERS} " in (SCRIPTS / "locked" / "development.txt").read_text()
    whole = Windows(MINILM_FOLDER, LABELS, window_tokens=12, overlap_tokens=4).of
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


# ---- rows


@pytest.mark.parametrize(("f1", "held"), [(0.99, True), (0.9, False)])
def test_a_peer_with_other_entities_breaks_the_claim(f1: float, *, held: bool) -> None:
    """The random weights of a large model have no aim: rounding decides their labels."""
    peer = {"model": "newswire-e5", "in_headlines_f1": f1, "same_entities_f1": 0.91}
    [claim] = claims([peer, peer | {"model": f"{RANDOM}x", "in_headlines_f1": 0.1}])
    assert held == claim.held


# ---- the peer on the JVM finds what ONNX Runtime in Python does, from topic to topic


Records = dict[str, dict[str, Any]]
"""Records by id."""
BEYOND_16_BITS = {
    "id": "\U0001f68b",
    "title": "\U0001f68b Angela Merkel",
    "body": "\U0001f68b Zoë met Emmanuel Macron.",
}
VALUES = [orjson.dumps(BEYOND_16_BITS), *articles("headlines", 4), *articles("news", 6)[4:]]
"""The last two are cut into several windows."""


def without_scores(records: Records) -> Records:
    """Kernels differ in the last digit of a score."""
    bare: Records = orjson.loads(orjson.dumps(records))
    for record in bare.values():
        record["model"] = {}
        for entity in record["entities"]:
            del entity["score"]
    return bare


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("windows_per_run", [None, 3])
def test_djl_writes_the_records_of_the_peer_in_python(
    folder: Path, topics: Topics, tmp_path: Path, windows_per_run: int | None
) -> None:
    """Article by article and in batches; offsets count code points, which are not Java's characters."""
    model = OnnxModel(folder, window_tokens=128, overlap_tokens=16, threads=1)
    read = [orjson.loads(value) for value in VALUES]
    found = model.find([text_of(article) for article in read])
    expected = {
        article["id"]: orjson.loads(encode(article, each, {})) for article, each in zip(read, found, strict=True)
    }
    publish(topics.bootstrap_servers, topics.input, [Sent(None, value) for value in VALUES])
    route = asdict(Route(topics.bootstrap_servers, topics.group, topics.input, topics.output))
    way = {"callers": 2, "threads": 1, "windows_per_run": windows_per_run}
    with Child("DjlWorker", folder, *PLACE, launcher=djl_launcher(tmp_path)) as process:
        assert len(VALUES) == process.ask(route=route, options=way, articles=len(VALUES))["articles"]
    messages = read_all(topics.bootstrap_servers, topics.output)
    written = {record["id"]: record for record in (orjson.loads(message.value() or b"") for message in messages)}
    assert without_scores(expected) == without_scores(written)
    assert {"Angela Merkel", "Emmanuel Macron"} <= {each["text"] for each in written["\U0001f68b"]["entities"]}
