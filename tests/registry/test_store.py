"""What is kept on disk: only what is whole is read, and nothing that the disk does stops the worker."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.registry.store import SchemaStore

SEVEN = SchemaRef("id", "7")
SCHEMA = Schema("PROTOBUF", 'syntax = "proto3"; // ä', (NamedSchema("a.proto", "A"), NamedSchema("b.proto", "B")))
OTHER = Schema("AVRO", '"string"')
UUID = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"


def store(folder: Path, registry: str = "http://a") -> SchemaStore:
    """A store in this folder."""
    return SchemaStore(folder, registry)


def test_what_is_kept_is_found_by_the_next_process(tmp_path: Path) -> None:
    """With its references, in their order."""
    store(tmp_path).keep(SEVEN, SCHEMA)
    assert store(tmp_path).find(SEVEN) == SCHEMA
    assert store(tmp_path, "http://b").find(SEVEN) is None
    assert store(tmp_path).find(SchemaRef("guid", "7")) is None


def test_a_file_that_was_cut_short_is_not_used_and_is_replaced(tmp_path: Path) -> None:
    """A file is renamed when it is whole, but a machine may lose power before its disk has it."""
    store(tmp_path).keep(SEVEN, SCHEMA)
    file = next(tmp_path.rglob("id-7.json"))
    whole = file.read_bytes()
    for broken in (whole[:10], b"", b"5", b"[1]", b'["AVRO"]', b"null"):
        file.write_bytes(broken)
        assert store(tmp_path).find(SEVEN) is None
    store(tmp_path).keep(SEVEN, SCHEMA)
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_used_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Here a file has its name. The worker works without it."""
    (tmp_path / "cache").write_text("in the way", "ascii")
    blocked = store(tmp_path / "cache")
    for _ in range(3):
        assert blocked.find(SEVEN) is None
        blocked.keep(SEVEN, SCHEMA)
    blocked.keep_id("s", OTHER, 5)
    assert blocked.id_of("s", OTHER) is None
    assert 2 == len(caplog.records), "one for reading, one for writing"


def test_several_processes_may_keep_the_same_schema_at_once(tmp_path: Path) -> None:
    """Each reads a whole file or none."""
    wrong: list[Schema] = []

    def keep() -> None:
        for number in range(50):
            own, reference = store(tmp_path), SchemaRef("id", str(number))
            own.keep(reference, SCHEMA)
            found = own.find(reference)
            if found != SCHEMA:
                wrong.append(found or OTHER)

    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong
    assert [] == list(tmp_path.rglob(".new-*")), "no temporary file is left"


def test_the_id_of_our_own_schema_is_kept_by_subject_and_text(tmp_path: Path) -> None:
    """Another text has another id, and a new id replaces the old one."""
    own = store(tmp_path)
    own.keep_id("entities-value", OTHER, 5)
    own.keep_id("entities-value", SCHEMA, 6)
    assert (5, 6, None) == tuple(
        store(tmp_path).id_of(subject, schema)
        for subject, schema in (("entities-value", OTHER), ("entities-value", SCHEMA), ("other", OTHER))
    )
    own.keep_id("entities-value", OTHER, 9)
    assert 9 == store(tmp_path).id_of("entities-value", OTHER)
