"""The peers on the JVM and on PyTorch find what ONNX Runtime in Python does, from topic to topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from support.models import MINILM_FOLDER, open_minilm
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.bench.legs.peers import laps_of, records_in
from tools.bench.load import articles
from tools.bench.peers.line_up import djl_launcher, export_peer, torch_python
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.processes import PeerProcess
from tools.bench.peers.records import encode, text_of
from tools.bench.peers.transfer import Options, Route

Records = dict[str, dict[str, Any]]
"""Records by id."""
PLACE = (128, 16, "cpu")
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, exported for the peers."""
    made = tmp_path_factory.mktemp("peers") / MINILM_FOLDER.name
    made.mkdir()
    return export_peer(open_minilm(), made)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Records:
    """The records of the peer in Python, by id."""
    model = OnnxModel(folder, window_tokens=128, overlap_tokens=16, threads=1)
    read = [orjson.loads(value) for value in VALUES]
    found = model.find([text_of(article) for article in read])
    records = [orjson.loads(encode(article, each, {})) for article, each in zip(read, found, strict=True)]
    return {record["id"]: record for record in records}


def written(process: PeerProcess, ways: Sequence[Options], topics: Topics) -> list[Records]:
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
    with PeerProcess("DjlWorker", folder, *PLACE, launcher=djl_launcher("cpu", tmp_path)) as process:
        runs = written(process, WAYS, settings_of_topics)
    assert [without_scores(expected)] * 2 == [without_scores(run) for run in runs]
    assert {"Angela Merkel", "Emmanuel Macron"} <= {each["text"] for each in runs[0]["\U0001f68b"]["entities"]}


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("kind", ["scripted", "compiled"])
def test_pytorch_without_the_pipeline_writes_them_too(
    kind: str, expected: Records, settings_of_topics: Topics, tmp_path: Path
) -> None:
    """In one graph for all batches and lengths."""
    python = torch_python()
    if isinstance(python, str):
        pytest.skip(python)
    worker, launcher = "tools.bench.peers.torch_worker", (python.path, "-m")
    with PeerProcess(worker, MINILM_FOLDER, *PLACE, "float32", kind, tmp_path, launcher=launcher) as process:
        runs = written(process, WAYS, settings_of_topics)
    assert [without_scores(expected)] * 2 == [without_scores(run) for run in runs]
