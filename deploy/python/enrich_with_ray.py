"""Enrich a folder of Parquet files with Ray Data: one model per actor, on all machines of the cluster.

python deploy/python/enrich_with_ray.py articles/ records/ --actors 8 --cores 2

The output has one row for each article, in Parquet: its id, the record as JSON, and the reason if there is none. Without a
cluster Ray runs on this machine. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pyarrow as pa
import ray

from enricher import Enricher

if TYPE_CHECKING:
    from enricher.answers import Record, Refusal

COLUMNS = ["id", "title", "body"]
"""What is read of the files, and where an article has its fields."""
BATCH_ROWS = 1_000
"""Articles of one call: enough that the end of a call, when the last windows fill no batch, does not count."""
OUTPUT = pa.schema([("id", pa.string()), ("record", pa.string()), ("reason", pa.string())])


class EnrichBatch:
    """What each actor has: one model, which it loads once."""

    def __init__(self, source: str, cores: int) -> None:
        self._enricher = Enricher.load(source, model={"concurrency": cores})

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Enrich the articles of a batch."""
        answers = self._enricher.enrich(batch.to_batches())
        rows = [row_of(article_id, answer) for article_id, answer in zip(batch["id"].to_pylist(), answers, strict=True)]
        return pa.Table.from_pylist(rows, schema=OUTPUT)


def row_of(article_id: str | None, answer: Record | Refusal) -> dict[str, str | None]:
    """The row of an article in the output."""
    if answer.reason is None:
        return {"id": article_id, "record": answer.json().decode(), "reason": None}
    return {"id": article_id, "record": None, "reason": answer.reason}


def enrich(articles: str, records: str, *, actors: int, cores: int, source: str = "newswire-e5") -> None:
    """Read `articles`, write `records`; both are folders, here or wherever pyarrow reads."""
    dataset = ray.data.read_parquet(articles).select_columns(COLUMNS)
    enriched = dataset.map_batches(
        EnrichBatch,
        fn_constructor_args=(source, cores),
        batch_format="pyarrow",
        batch_size=BATCH_ROWS,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=cores,
    )
    enriched.write_parquet(records)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("articles")
    parser.add_argument("records")
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--cores", type=int, default=1, help="of each actor; reading needs one more in the cluster")
    parser.add_argument("--source", default="newswire-e5", help="folder of the model")
    asked = parser.parse_args()
    enrich(asked.articles, asked.records, actors=asked.actors, cores=asked.cores, source=asked.source)


if __name__ == "__main__":
    main()
