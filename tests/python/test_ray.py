"""The example for Ray Data on this machine: the records that `Enricher` and the worker give, one for each article."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.patience import PATIENCE_S

from enricher import Enricher

ROOT = Path(__file__).parents[2]
ARTICLES = 2_000
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "240"}
"""Sends nothing, writes no token to the home folder, and has time to start on a busy machine."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; scripts/test --all adds it"),
]


def test_ray_data_gives_the_records_of_the_worker(tmp_path: Path) -> None:
    """From several files, in batches, by actors; each article once, and a bad one with its reason."""
    rows = [
        {"id": str(number), "title": "", "body": f"Ana Ribeiro met number {number} in Oslo."}
        for number in range(ARTICLES)
    ]
    rows[7]["body"] = ""
    for part in range(4):
        file = tmp_path / "articles" / f"{part}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows[part::4]), file, row_group_size=200)
    subprocess.run(
        [sys.executable, ROOT / "deploy/python/enrich_with_ray.py", tmp_path / "articles", tmp_path / "records"],
        env={**os.environ, **RAY},
        check=True,
        timeout=4 * PATIENCE_S,
    )
    found = {row["id"]: row for row in pq.read_table(tmp_path / "records").to_pylist()}
    assert ARTICLES == len(found) == pq.read_table(tmp_path / "records").num_rows
    assert "title and body have no visible character" == found.pop("7")["reason"]
    with Enricher.load() as enricher:
        expected = {each.id: each.json().decode() for each in enricher.enrich(rows) if each.reason is None}
    assert expected == {name: row["record"] for name, row in found.items()}
