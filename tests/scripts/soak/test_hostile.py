"""The soak's results for a worker under attack."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools import enricher_command
from tools.soak.attacks import FileAttack, attacks
from tools.soak.hostile import LIMIT_BYTES, Row, measure, table, write

GOOD = Row("a", "an attack", accepted=10, refused=2, enriched=4, dead_letters=6, peak_bytes=1, seconds=1.0, exit_code=0)


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, enriched=3),
        replace(GOOD, dead_letters=7),
        replace(GOOD, exit_code=7),
        replace(GOOD, peak_bytes=LIMIT_BYTES + 1),
    ],
)
def test_it_holds_only_where_every_record_came_out_within_the_limit(bad: Row) -> None:
    """A lost or doubled record, an early end and too much memory are each enough to fail."""
    assert GOOD.holds
    assert not bad.holds
    assert "| no (exit code" in table([GOOD, bad])


def test_the_peak_is_what_the_system_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak is measured even if it lasts only a moment between two samples."""
    code = "import time; x = b'a' * 300_000_000; del x; time.sleep(1)"
    monkeypatch.setattr(enricher_command, "COMMAND", (sys.executable, "-c", code))
    exit_code, peak_bytes, _ = measure({})
    assert exit_code == 0
    assert 300_000_000 < peak_bytes < 400_000_000


def test_a_packed_file_has_as_many_lines_as_it_says(tmp_path: Path) -> None:
    """The compressed line is concatenated with itself."""
    path, lines = FileAttack("f", "", 10, b"{}").write(tmp_path, 0.5)
    assert lines == 5
    assert gzip.decompress(path.read_bytes()) == b"{}\n" * 5


def test_attacks_have_names_of_their_own() -> None:
    """Attacks are chosen by name, so names are unique."""
    names = [attack.name for attack in attacks()]
    assert len(set(names)) == len(names)


def test_the_table_is_kept_for_people_and_machines(tmp_path: Path) -> None:
    """Table and figures are written, with the machine."""
    write(tmp_path, [GOOD], 0.5)
    assert "an attack" in (tmp_path / "hostile.md").read_text()
    kept = json.loads((tmp_path / "hostile.json").read_bytes())
    assert (kept["share"], kept["rows"][0]["accepted"]) == (0.5, 10)
