"""`enricher.json`: what is known to suit a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enricher.errors import ModelError
from enricher.inference.advice import ADVICE_FILE, Advice, advice_for


def write(folder: Path, **values: object) -> Path:
    """Write the file."""
    (folder / ADVICE_FILE).write_text(json.dumps(values))
    return folder


def test_without_a_file_there_are_defaults_within_what_the_model_takes(tmp_path: Path) -> None:
    """And no advice on batches and lanes."""
    assert Advice(256, 64, None, None, None) == advice_for(tmp_path, 512)
    assert 160 == advice_for(tmp_path, 160).max_window_tokens


def test_what_tuning_recommends_can_be_kept_with_the_model(tmp_path: Path) -> None:
    """Batches, lanes and buckets are optional."""
    folder = write(
        tmp_path, max_window_tokens=128, overlap_tokens=16, lanes=2, max_batch_tokens=512, bucket_edges=[64, 128]
    )
    assert Advice(128, 16, 512, 2, (64, 128)) == advice_for(folder, 512)
    assert Advice(64, 16, 512, 2, (64, 128)) == advice_for(folder, 64)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"max_windows": 3}, "expected a JSON object with max_window_tokens"),
        ({"max_window_tokens": "128"}, "whole numbers"),
        ({"lanes": 0}, "whole numbers"),
        ({"max_batch_tokens": 1.5}, "whole numbers"),
        ({"bucket_edges": [64, 32]}, "bucket_edges is a list of whole numbers that grow"),
        ({"bucket_edges": 64}, "bucket_edges"),
    ],
)
def test_a_malformed_file_is_refused_with_the_reason(tmp_path: Path, values: dict[str, object], problem: str) -> None:
    """Not ignored: somebody meant something by it."""
    with pytest.raises(ModelError, match=problem):
        advice_for(write(tmp_path, **values), 512)
