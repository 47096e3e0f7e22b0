"""`enricher index run` with one rule broken, for the negative controls.

python tests/indexing/odd_indexer.py no-version|unversioned-deletes|commits-first [ARGUMENTS]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from enricher import cli
from enricher.indexing import bulk_requests, bulk_writer
from enricher.indexing.index_documents import Document
from enricher.indexing.output_reader import OutputReader
from enricher.worker.records import RawRecord

_VERSION = rb',"version":\d+,"version_type":"external_gte"'


def _without_versions(of_lines: bytes) -> None:
    as_shipped = bulk_requests.lines_of

    def lines_of(documents: Iterable[Document]) -> bytes:
        return re.sub(of_lines + _VERSION, lambda found: found[1], as_shipped(documents))

    assert hasattr(bulk_writer, "lines_of"), "requests are made in another way now"
    vars(bulk_writer)["lines_of"] = lines_of


def _commits_first() -> None:
    as_shipped = OutputReader.poll

    def poll(reader: OutputReader, limit: int, wait_s: float) -> list[RawRecord]:
        records = as_shipped(reader, limit, wait_s)
        reader.commit()
        return records

    OutputReader.poll = poll  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    rule = sys.argv.pop(1)
    if rule == "commits-first":
        _commits_first()
    else:
        _without_versions(
            rb'({"(?:index|delete)":{"_id":"[^"]*")' if rule == "no-version" else rb'({"delete":{"_id":"[^"]*")'
        )
    sys.argv[1:1] = ["index", "run"]
    cli.main()
