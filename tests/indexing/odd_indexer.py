"""`enricher index run` with one rule broken, for the negative controls; or a hasty one, which asks for the index's id often.

python tests/indexing/odd_indexer.py no-version|unversioned-deletes|commits-first|output-offset|hasty [ARGUMENTS]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace

from enricher import cli
from enricher.indexing import bulk_writer, search_index
from enricher.indexing.index_documents import Document, DocumentMaker
from enricher.indexing.output_reader import OutputReader
from enricher.worker.records import RawRecord

_VERSION = rb',"version":\d+,"version_type":"external_gte"'


def _without_versions(of_lines: bytes) -> None:
    as_shipped = bulk_writer.bulk_lines

    def bulk_lines(documents: Iterable[Document]) -> bytes:
        return re.sub(of_lines + _VERSION, lambda found: found[1], as_shipped(documents))

    vars(bulk_writer)["bulk_lines"] = bulk_lines


def _commits_first() -> None:
    as_shipped = OutputReader.poll

    def poll(reader: OutputReader, limit: int, wait_s: float) -> list[RawRecord]:
        records = as_shipped(reader, limit, wait_s)
        reader.commit()
        return records

    OutputReader.poll = poll  # type: ignore[assignment, method-assign]


def _versions_are_offsets() -> None:
    """Those of the output topic, as connectors have them."""
    as_shipped = DocumentMaker.document

    def document(maker: DocumentMaker, raw: RawRecord) -> Document:
        return replace(as_shipped(maker, raw), version=raw.offset)

    DocumentMaker.document = document  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    match sys.argv.pop(1):
        case "no-version":
            _without_versions(rb'({"(?:index|delete)":{"_id":"[^"]*")')
        case "unversioned-deletes":
            _without_versions(rb'({"delete":{"_id":"[^"]*")')
        case "commits-first":
            _commits_first()
        case "output-offset":
            _versions_are_offsets()
        case "hasty":
            vars(search_index)["_READ_AGAIN_S"] = 0.1
        case unknown:
            sys.exit(f"no such rule: {unknown}")
    sys.argv[1:1] = ["index", "run"]
    cli.main()
