"""The storage of a fresh node, copied from the first one that Kafka's own tool formatted."""

from __future__ import annotations

import re
from pathlib import Path

from tools.kafka.node import META, FormattedStorage, new_id

TEXT = "#\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBB\nnode.id=1\nversion=1\n"


def formatted(folder: Path) -> Path:
    """What the tool writes, in short."""
    folder.mkdir()
    (folder / META).write_text(TEXT)
    (folder / "bootstrap.checkpoint").write_bytes(b"records")
    return folder


def test_a_copy_has_ids_of_its_own(tmp_path: Path) -> None:
    """Two nodes with one directory's id would not start, and a node finds another's id in its storage."""
    storage, cluster_id = FormattedStorage(tmp_path / "kept"), new_id()
    storage.keep(formatted(tmp_path / "first"))
    directories = set()
    for node in (2, 3):
        log = tmp_path / f"node-{node}" / "log"
        assert storage.copy_to(log, cluster_id, node)
        found = dict(re.findall(r"(?m)^([\w.]+)=(.*)$", (log / META).read_text()))
        directories.add(found.pop("directory.id"))
        assert {"cluster.id": cluster_id, "node.id": str(node), "version": "1"} == found
        assert b"records" == (log / "bootstrap.checkpoint").read_bytes()
    assert len(directories - {"B" * 22}) == 2


def test_nothing_is_copied_before_the_first_was_kept(tmp_path: Path) -> None:
    """The tool has to run then."""
    assert not FormattedStorage(tmp_path / "kept").copy_to(tmp_path / "log", new_id(), 1)
    assert not (tmp_path / "log").exists()


def test_the_first_of_several_that_keep_it_wins(tmp_path: Path) -> None:
    """The others leave nothing beside it."""
    storage = FormattedStorage(tmp_path / "cache" / "kept")
    (tmp_path / "cache").mkdir()
    storage.keep(formatted(tmp_path / "first"))
    (second := formatted(tmp_path / "second")).joinpath("bootstrap.checkpoint").write_bytes(b"others")
    storage.keep(second)
    assert [storage.kept] == list((tmp_path / "cache").iterdir())
    assert b"records" == (storage.kept / "bootstrap.checkpoint").read_bytes()
