"""Runs our worker and the peers on one backlog, and reads what they wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from enricher.worker.build.loaded_model import Model
from enricher.workshop.gate.scoring import EntitySpan
from tools.bench.backlog import run_worker
from tools.bench.bench import Bench
from tools.bench.peers.orders import Options
from tools.bench.peers.processes import PeerProcess
from tools.bench.peers.transfer import Route
from tools.bench.repeating import Run
from tools.kafka.reader import Reader
from tools.only_task import tasks_of
from tools.topics import Topics
from tools.waiting import wait_until

Written = Mapping[str, set[EntitySpan]]
"""Content of the output topic: the entities of each article by id."""


VISIBLE_S = 5.0
"""How long to wait until everything that was committed is visible."""


class Incomplete(RuntimeError):
    """A worker did not write exactly one record per article, so it cannot be compared."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker to compare with, and the options to try, of which the best is used."""

    name: str
    process: PeerProcess
    ways: Sequence[Options]


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
