"""Links in a model's folder: those that lead out of it are refused, but for the ones that the hub's cache is made of."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import shared_mode
from enricher.worker.inference.run.model import open_model

REFERENCE = Path(__file__).parent.parent / "data" / "reference" / "bert"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="not every user may make links there")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model."""
    return Path(shutil.copytree(REFERENCE, tmp_path / "model"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that is none of the model's."""
    path = tmp_path / "secret"
    path.write_text("PRIVATE KEY")
    return path


@pytest.mark.parametrize("name", ["tokenizer.json", "enricher.json", "gate-x.json", "graphs/key/model.onnx", "onnx/"])
def test_a_link_to_a_file_or_folder_elsewhere_is_refused(folder: Path, secret: Path, name: str) -> None:
    """Whatever it is for, at any depth: a folder would be walked through."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(secret.parent if name.endswith("/") else secret)
    with pytest.raises(ModelError, match=f"{path} is a link to a (file|folder) outside"):
        open_model(folder)


def test_links_within_the_folder_are_followed(folder: Path, tmp_path: Path) -> None:
    """Kubernetes mounts its volumes so: `config.json -> ..data/config.json`, `..data -> ..2026_01_01`. Or `v -> v7`."""
    (folder / "..2026_01_01").mkdir()
    (folder / "config.json").rename(folder / "..2026_01_01" / "config.json")
    (folder / "..data").symlink_to("..2026_01_01")
    (folder / "config.json").symlink_to("..data/config.json")
    (tmp_path / "current").symlink_to(folder)
    assert open_model(tmp_path / "current").labels


def snapshot_of(folder: Path, root: Path) -> Path:
    """The folder as the hub's cache has it: every file a link to a blob."""
    repository = root / "models--someone--model"
    snapshot, blobs = repository / "snapshots" / "0123abc", repository / "blobs"
    snapshot.mkdir(parents=True)
    shutil.copytree(folder, blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    return snapshot


def test_the_hub_caches_own_links_are_followed(folder: Path, tmp_path: Path) -> None:
    """From a snapshot to the blobs beside it."""
    assert open_model(snapshot_of(folder, tmp_path)).digest == open_model(folder).digest


@pytest.mark.parametrize("where", ["blob", "blobs", "snapshot"])
def test_a_folder_that_looks_like_the_hub_cache_gives_nothing_else_away(
    folder: Path, secret: Path, tmp_path: Path, where: str
) -> None:
    """A blob that is a link itself, all blobs elsewhere, or a link past the blobs."""
    snapshot = snapshot_of(folder, tmp_path)
    blobs = snapshot.parents[1] / "blobs"
    if where == "blob":
        (blobs / "config.json").rename(secret)
        (blobs / "config.json").symlink_to(secret)
    elif where == "blobs":
        blobs.rename(tmp_path / "elsewhere")
        blobs.symlink_to(tmp_path / "elsewhere")
    else:
        (snapshot / "README.md").symlink_to(secret)
    with pytest.raises(ModelError, match="is a link to a file outside"):
        open_model(snapshot)


@pytest.mark.parametrize(
    ("name", "needed"),
    [("model.safetensors", True), ("graphs", True), ("lost+found", False), (".git", False), (".DS_Store", False)],
)
def test_a_file_of_another_user_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, needed: bool
) -> None:
    """The library for weights calls such a file missing, and a graph was a traceback. The tests' user may read all.

    A volume has a folder that only root may read, and what is not the model's is never opened.
    """
    if name != "model.safetensors":
        (folder / name).mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name and access(path, mode))
    with (
        pytest.raises(ModelError, match=rf"{name}: this user may not read it.*chmod -R a\+rX")
        if needed
        else nullcontext()
    ):
        assert open_model(folder).labels


def test_a_link_that_leads_nowhere_denies_nothing(folder: Path) -> None:
    """If its file is needed, it is missing: no right would help."""
    (folder / "README.md").symlink_to("nowhere")
    assert open_model(folder).labels
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("nowhere")
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        open_model(folder)


def test_what_is_made_of_files_may_be_read_by_those_who_may_read_all(folder: Path) -> None:
    """Nobody else may read it, and nobody may run or write it."""
    first, second = folder / "config.json", folder / "model.safetensors"
    first.chmod(0o664)
    second.chmod(0o755)
    assert 0o644 == shared_mode([first, second])
    second.chmod(0o640)
    assert 0o640 == shared_mode([first, second])
