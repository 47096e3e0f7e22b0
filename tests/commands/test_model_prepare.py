"""`enricher model prepare`: a self-contained folder, from a folder or from the hub's cache, and nothing that runs code."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from pathlib import Path

import pytest
from commands.model_app import run_model, tiny_model
from inference.conftest import change_config
from support.reports import empty_recipe

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.worker.inference.graph.int8 import write_recipe
from enricher.worker.inference.graph.padded import OpenVinoInt8
from enricher.worker.inference.run.model import prepare
from enricher.workshop.prepare import ALLOWED, EXPORT, fetch
from enricher.workshop.prepared_folder import Manifest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small model with things in its folder that must not come along."""
    folder = tiny_model(tmp_path / "tiny")
    for name in ("pytorch_model.bin", "modeling_custom.py", "training_args.bin"):
        (folder / name).write_bytes(b"\x80\x04.")
    (folder / "README.md").write_text("Its origin and licence.\n")
    return folder


def prepared(source: str | Path, out: Path, *more: str) -> Path:
    """Run the command, which must succeed."""
    arguments = ("prepare", source, "--out", out, "--device", "cpu", "--precision", "fp32", *more)
    result = run_model(*arguments, cache_dir=out.parent / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    return out


def test_the_folder_is_complete_and_has_the_digest_of_its_source(source: Path, tmp_path: Path) -> None:
    """The same model by digest, its graph, its licence; no pickle and no code. It runs by its path, without its source."""
    out = prepared(source, tmp_path / "out")
    manifest = Manifest.model_validate_json((out / "manifest.json").read_bytes())
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"config.json", "manifest.json", "model.safetensors", "tokenizer.json", "README.md"} <= files
    assert [] == [name for name in files if name.endswith((".bin", ".py", ".pkl"))]
    assert Checkpoint.open(source).digest == Checkpoint.open(out).digest == manifest.model_digest
    assert ("cpu", "fp32", None) == (manifest.device, manifest.precision, manifest.revision)
    shutil.rmtree(source)
    model = prepare(str(out), device="cpu", precision="auto", cache_dir=out / "graphs")
    assert [model.onnx_path.parent] == list((out / "graphs").iterdir()), "the graph of a build"
    assert "out" == model.card.name


def test_inspect_notices_another_model_than_was_prepared(source: Path, tmp_path: Path) -> None:
    """A hand that helped."""
    out = prepared(source, tmp_path / "out")
    assert run_model("inspect", out, "--device", "cpu", cache_dir=tmp_path).exit_code == 0
    config = json.loads((out / "config.json").read_bytes())
    (out / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.5}))
    error = run_model("inspect", out, "--device", "cpu", cache_dir=tmp_path).exception
    assert isinstance(error, ModelError)
    assert "not the model that was prepared" in str(error)


def test_a_folder_without_a_tokenizer_is_refused(source: Path, tmp_path: Path) -> None:
    """Before anything is copied, and where nothing but a worker would need one: fp32 has no gate."""
    (source / "tokenizer.json").unlink()
    options = ("--out", tmp_path / "out", "--precision", "fp32", "--device", "cpu")
    error = run_model("prepare", source, *options, cache_dir=tmp_path / "cache").exception
    assert isinstance(error, ModelError)
    assert "no tokenizer" in str(error)
    assert not (tmp_path / "out").exists()


def test_what_would_lead_out_of_the_folder_is_refused(source: Path, tmp_path: Path) -> None:
    """A link could lead to a private key, which others could read in the prepared folder."""
    (tmp_path / "secret").write_text("PRIVATE KEY")
    (source / "LICENSE").symlink_to(tmp_path / "secret")
    error = run_model("prepare", source, "--out", tmp_path / "out", cache_dir=tmp_path / "cache").exception
    assert isinstance(error, ModelError)
    assert "LICENSE is a link to a file outside the model's folder" in str(error)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_every_user_may_read_a_prepared_folder(source: Path, tmp_path: Path) -> None:
    """Libraries save weights for their owner alone, and the pod that serves the folder runs as another user."""
    (source / "model.safetensors").chmod(0o600)
    out = prepared(source, tmp_path / "out")
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (out, *out.rglob("*"))}
    assert {(True, 0o755), (False, 0o644)} == modes


def test_only_a_prepared_folder_is_replaced(source: Path, tmp_path: Path) -> None:
    """Other people's files stay, and so does the source."""
    out = prepared(source, tmp_path / "out")
    prepared(source, out)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"")
    for place in (tmp_path / "photos", source):
        result = run_model("prepare", source, "--out", place, "--precision", "fp32", cache_dir=tmp_path / "cache")
        assert isinstance(result.exception, ModelError)
        assert "choose another --out" in str(result.exception)
    assert (tmp_path / "photos" / "one.jpg").is_file()
    assert [] == list(tmp_path.glob(".preparing-*"))


@pytest.mark.skipif(openvino_problem("fp32") is not None, reason=f"{openvino_problem('fp32')}")
def test_a_precision_that_fails_its_gate_leaves_no_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for by name it is refused, with the gate's reason."""
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: openvino_problem("fp32"))
    write_recipe(source, empty_recipe(Checkpoint.open(source)))
    gold = tmp_path / "gold.jsonl"
    gold.write_text('{"text": "In Rome", "entities": [{"start": 3, "end": 7, "label": "LOC"}]}\n')
    out = tmp_path / "out"
    arguments = ("--out", out, "--device", "cpu", "--precision", "int8", "--gold", gold)
    result = run_model("prepare", source, *arguments, cache_dir=tmp_path / "cache")
    assert isinstance(result.exception, ModelError)
    assert "int8 is refused: openvino-int8 failed its gate" in str(result.exception)
    assert "openvino-int8 failed:\n  - " in result.stderr
    assert "largest logit" in result.stderr, "all columns, although the width of a line is unknown"
    assert not out.exists()


def hub_cache(root: Path, source: Path) -> Path:
    """What the hub's client leaves after a download of `someone/model`."""
    repository = root / "models--someone--model"
    snapshot = Path(shutil.copytree(source, repository / "snapshots" / COMMIT))
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):  # as the client keeps them
        path.rename(repository / "blobs" / str(number))
        path.symlink_to(Path("..", "..", "blobs", str(number)))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return root


def test_offline_a_hub_id_comes_from_the_clients_cache(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is recorded; what a pickle-loving user left in the cache stays there."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub_cache(tmp_path / "hub", source)))
    out = prepared("someone/model", tmp_path / "out")
    manifest = Manifest.model_validate_json((out / "manifest.json").read_bytes())
    assert ("someone/model", COMMIT) == (manifest.source, manifest.revision)
    assert not (out / "pytorch_model.bin").exists()


def test_offline_without_a_copy_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback of an HTTP client."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"cannot be fetched from the hub: .*hf download someone/model"):
        fetch("someone/model", None)


def test_a_folder_wins_over_a_hub_id_and_a_path_is_never_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped path must not become a request to another repository."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "model").mkdir(parents=True)
    assert Path("someone/model") == fetch("someone/model", None).folder
    for path in ("/models/none", "./someone/none", "models/of/mine", "none"):
        assert Path(path) == fetch(path, None).folder


def test_only_weights_without_code_and_plain_files_are_asked_for(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub is asked by pattern, and no pattern matches a pickle or a Python file.

    An export comes too if there are no weights, or weights of a family that we build no graph for.
    """
    asked, snapshot = list[tuple[object, ...]](), tmp_path / COMMIT
    source.rename(snapshot)

    def snapshot_download(name: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    whole, export = ("someone/model", "main", list(ALLOWED)), ("someone/model", COMMIT, list(EXPORT))
    assert COMMIT == fetch("someone/model", "main").revision
    assert [whole] == asked
    change_config(snapshot, model_type="big_bird")
    fetch("someone/model", "main")
    (snapshot / "model.safetensors").unlink()
    fetch("someone/model", "main")
    assert [whole, *[whole, export] * 2] == asked
    dangerous = ("pytorch_model.bin", "modeling_x.py", "model.pkl", "model.pt", "tf_model.h5", "onnx/model.onnx")
    assert [] == [name for name in dangerous if any(Path(name).match(pattern) for pattern in ALLOWED)]
    wanted = ("model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json", "config.json")
    assert all(any(Path(name).match(pattern) for pattern in ALLOWED) for name in wanted)
