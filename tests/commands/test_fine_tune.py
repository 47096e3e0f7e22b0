"""The section of `deploy/models.md` about training: its commands, on 200 sentences, from the lines to the comparison."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.models import MINILM_FOLDER

from enricher.workshop.gate.gold import DEFAULT_GOLD
from enricher.workshop.prepared_folder import Manifest
from tools import ROOT
from tools.bench.peers.line_up import torch_python

PAGE = ROOT / "deploy" / "models.md"
SENTENCES = [json.loads(line) for line in DEFAULT_GOLD.read_text("utf-8").splitlines()]
ARTICLES = ROOT / "enricher" / "models" / "articles" / "wikinews.jsonl"
HELD_OUT, ARTICLES_COMPARED = 80, 3
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the repository's own, a Python with PyTorch, and 200 sentences to train on, and others to measure by."""
    python = torch_python()
    if isinstance(python, str):
        pytest.skip(python)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name, path in {"torch-env/bin/python": python.path, "bin/enricher": f"{sys.executable} -m enricher"}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {path} "$@"\n')
        (tmp_path / name).chmod(0o755)
    write_lines(tmp_path / "train.jsonl", SENTENCES[:200])
    write_lines(tmp_path / "held-out.jsonl", SENTENCES[200:][:HELD_OUT])
    articles = ARTICLES.read_bytes().splitlines(keepends=True)
    (tmp_path / "articles.jsonl").write_bytes(b"".join(articles[:ARTICLES_COMPARED]))
    return tmp_path


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


def run(commands: str, folder: Path) -> str:
    """Run the commands; returns what they print. Fails if one of them does."""
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
    }
    environment |= {
        "OMP_NUM_THREADS": "1",
        "ENRICHER_MODEL__CACHE_DIR": str(folder / "cache"),
        "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["/bin/bash", "-eu"], input=commands, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_page_trains_measures_prepares_and_compares(folder: Path) -> None:
    """With the labels of a trained model, whose head goes on learning."""
    section = PAGE.read_text("utf-8").partition("\n## Training on your own text\n")[2]
    (commands,) = re.findall(
        r"run by tests/commands/test_fine_tune\.py -->\n```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL
    )
    run(commands.replace("BASE", str(MINILM_FOLDER)), folder)
    manifest = Manifest.model_validate_json((folder / "prepared" / "manifest.json").read_bytes())
    assert "next" == manifest.source
    evaluate = "enricher model evaluate {} --gold held-out.jsonl --json"
    before, after = (
        json.loads(run(evaluate.format(model), folder))["overall"]["f1"]["value"]
        for model in (MINILM_FOLDER, "prepared")
    )
    assert after > before - 0.1
