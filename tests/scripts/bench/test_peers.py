"""The peers of the bench do the whole job, and one that does not is detected."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import orjson
import pytest
from confluent_kafka import Producer
from support.models import MINILM_FOLDER, open_minilm
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.workshop.gate.scoring import EntitySpan
from tools.bench.legs.peers import SEED, Incomplete, check_records, laps_of, records_in
from tools.bench.load import articles
from tools.bench.peers.line_up import VARIABLE, export_peer, torch_python
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.processes import PeerFailed, PeerProcess
from tools.bench.peers.records import Found, Span, encode, text_of
from tools.bench.peers.transfer import Route
from tools.bench.peers.window_model import Windows

LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
CARD = {"name": "m", "digest": "d", "precision": "fp32"}
ARTICLE = {"id": "1", "title": "Angela Merkel", "body": "Angela Merkel met Emmanuel Macron in Paris.", "language": "en"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, exported for the peers."""
    made = tmp_path_factory.mktemp("peers") / MINILM_FOLDER.name
    made.mkdir()
    return export_peer(open_minilm(), made)


@pytest.fixture
def windows() -> Windows:
    """Short windows, so that a short text has several."""
    return Windows(MINILM_FOLDER, LABELS, window_tokens=12, overlap_tokens=4)


def test_windows_overlap_and_every_token_counts_once(windows: Windows) -> None:
    """The decided parts of neighbouring windows follow one another without a gap, to the last token."""
    text = " ".join(f"word{number}" for number in range(40))
    (parts,) = windows.of([text])
    whole = Windows(MINILM_FOLDER, LABELS, window_tokens=512, overlap_tokens=4).of([text])[0]
    owned = [
        offset for index, part in enumerate(parts) for offset in part.offsets[windows.owned(part, index, len(parts))]
    ]
    assert len(parts) > 5
    assert [whole[0].offsets[1:-1], 1] == [owned, len(whole)]
    assert {"tokens": len(owned), "windows": len(parts), "truncated": False} == windows.coverage(parts)


def test_spans_are_put_together_across_windows(windows: Windows) -> None:
    """An entity across the boundary of two windows is found as one."""
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    (parts,) = windows.of([text])
    labels = [np.array([3 if token == "seven" else 4 * (token == "eight") for token in part.tokens]) for part in parts]
    (span,) = windows.spans(parts, labels, [np.full(len(part.ids), 0.5) for part in parts])
    assert ("seven eight", "ORG", 0.5) == (text[span.start : span.end], span.label, span.score)
    assert len(parts) > 1


def test_a_record_has_the_fields_of_ours_and_offsets_count_in_their_own_field() -> None:
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
    with PeerProcess("tools.bench.peers.http_server", folder, 128, 16, "cpu", 1) as process:
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
        PeerProcess("tools.bench.peers.onnx_worker", folder, 128, 16, "cpu") as in_process,
        PeerProcess("tools.bench.peers.http_worker", folder) as over_http,
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


def test_a_worker_that_leaves_something_out_or_repeats_it_is_found_out() -> None:
    """Negative control: missing and repeated records are detected."""
    one, two = ({"id": name, "entities": []} for name in "ab")
    assert {"a": set(), "b": set()} == check_records([one, two], ["a", "b"])
    for records in ([one], [one, one], [one, two, two]):
        with pytest.raises(Incomplete):
            check_records(records, ["a", "b"])


def test_a_peer_that_dies_says_why(tmp_path: Path) -> None:
    """The error contains the end of the peer's output."""
    with (
        PeerProcess("tools.bench.peers.onnx_worker", tmp_path, 128, 16, "cpu") as process,
        pytest.raises(PeerFailed, match=r"model\.onnx"),
    ):
        process.hear()


def test_the_same_articles_come_again_under_other_ids() -> None:
    """Every lap has the block's texts under new ids."""
    block = articles("news", 3)
    laps = [orjson.loads(value) for value in laps_of(block, 2)]
    assert 6 == len({each["id"] for each in laps})
    assert [each["body"] for each in laps[:3]] == [each["body"] for each in laps[3:]]


def test_the_mixed_block_has_the_shares_of_the_mix() -> None:
    """The block has 12 headlines, 6 news articles and 2 long reads."""
    bodies = [len(orjson.loads(value)["body"]) for value in articles("mixed", 20, seed=SEED)]
    assert (12, 2) == (sum(chars <= 220 for chars in bodies), sum(chars > 12_000 for chars in bodies))


def test_an_interpreter_without_pytorch_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The result says what is missing and how to install it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    assert str(torch_python()).startswith("not measured: BENCH_TORCH_PYTHON names")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(bare))
    assert "PyTorch is not installed" in str(torch_python())
