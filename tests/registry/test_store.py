"""What is kept on disk, and the id of the schema of records, for which the worker asks at its start."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.schema_registry import Registry, serving, status

from enricher.errors import BrokerError, SettingsError, TransactionTrouble
from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.contracts import record_schema
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import RecordSchema, SchemaStore
from enricher.worker.settings import ArticleSettings, OutputSettings, RegistrySettings, Settings
from enricher.worker.wiring.formats import check_formats, check_record_schema, writer_of

SEVEN = SchemaRef("id", "7")
SCHEMA = Schema("PROTOBUF", 'syntax = "proto3"; // ä', (NamedSchema("a.proto", "A"), NamedSchema("b.proto", "B")))
OTHER = Schema("AVRO", '"string"')


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


OURS = Schema("AVRO", '"ours"')


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry without schemas, on a port of this machine."""
    with serving() as registry:
        yield registry


def register_at(registry: Registry, schema_id: int, schema: Schema = OURS) -> None:
    """Let the subject have this schema."""
    registry.add("s", schema.type, schema.text, schema_id)


def of_records(registry: Registry, folder: Path) -> RecordSchema:
    """The schema of records of a worker that keeps ids in this folder."""
    client = RegistryClient(registry.url, {}, timeout_s=5.0, max_schema_bytes=10_000)
    return RecordSchema("s", OURS, client, SchemaStore(folder, registry.url))


def posted(registry: Registry) -> list[str]:
    """The paths to which something was sent."""
    return [path for _, method, path in registry.requests if method == "POST"]


def test_while_the_registry_is_away_the_id_on_disk_counts(registry: Registry, tmp_path: Path) -> None:
    """A restarted worker goes on. An answer of the registry counts more than the disk."""
    register_at(registry, 42)
    assert 42 == of_records(registry, tmp_path).find_id()
    registry.behaviour = status(503)
    assert 42 == of_records(registry, tmp_path).find_id()
    registry.behaviour = None
    registry.versions.clear()
    with pytest.raises(BrokerError):
        of_records(registry, tmp_path).find_id()


def test_a_schema_that_is_not_registered_ends_the_worker(registry: Registry, tmp_path: Path) -> None:
    """Another schema of the subject is another schema; nothing is registered."""
    register_at(registry, 3, Schema("AVRO", '"string"'))
    with pytest.raises(BrokerError, match=r"AVRO.*'s'.*enricher schemas register") as error:
        of_records(registry, tmp_path).find_id()
    assert 4 == error.value.exit_code
    assert ["/subjects/s"] == posted(registry)


def settings(registry: Registry, folder: Path, **output: str) -> Settings:
    """Settings of a worker that writes Avro."""
    return Settings(
        output=OutputSettings(format="avro", **output), registry=RegistrySettings(url=registry.url, cache_dir=folder)
    )


def register(registry: Registry, subject: str) -> None:
    """Let the subject have our schema."""
    registry.versions[subject, "1"] = {"subject": subject, "version": 1, "id": 7, "schema": record_schema("AVRO")}


def test_plain_json_asks_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not even load what would."""
    monkeypatch.setitem(sys.modules, "enricher.worker.wiring.formats", None)
    writer, prepare = writer_of(Settings())
    prepare()
    assert (True, None) == (writer.ready, writer.schema)


def test_a_registry_that_is_away_is_asked_again(registry: Registry, tmp_path: Path) -> None:
    """Each attempt of the start calls it; the check before the model is loaded does not end the process."""
    chosen = settings(registry, tmp_path, subject="s")
    with pytest.raises(BrokerError, match="enricher schemas register"):
        check_record_schema(chosen)
    register(registry, "s")
    registry.behaviour = status(503)
    check_record_schema(chosen)
    writer, prepare = writer_of(chosen)
    with pytest.raises(TransactionTrouble):
        prepare()
    assert not writer.ready
    registry.behaviour = None
    prepare()
    assert writer.ready
    asked = len(registry.requests)
    prepare()
    assert asked == len(registry.requests), "once it is known, nobody asks again"


def test_settings_that_cannot_be_right_are_refused_at_the_start() -> None:
    """Without a connection, whichever side needs the registry."""
    nowhere = RegistrySettings(url="http://")
    reads = Settings(articles=ArticleSettings(format="registry"), registry=nowhere)
    writes = Settings(output=OutputSettings(format="avro"), registry=nowhere)
    for chosen in (reads, writes):
        with pytest.raises(SettingsError, match="name a host"):
            check_formats(chosen)
