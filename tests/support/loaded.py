"""Models that several tests share: for tests about articles and records, and not about loading, warm-up or memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.topics import QUICK_TO_START

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.settings import Settings
    from enricher.worker.wiring.loaded_tasks import Model

_DECIDING: dict[str, set[str] | bool] = {
    "model": True,
    "batching": True,
    "articles": {"max_article_tokens"},
}
"""The settings that decide what is loaded, and how it is warmed up."""


class _Models:
    """Loads a model unless this process has loaded it before with the same settings."""

    def __init__(self) -> None:
        # Not above: many test files need no model.
        from enricher.worker.wiring.loaded_tasks import load_model  # noqa: PLC0415

        self._load = load_model
        self._loaded: dict[tuple[str, ...], Model] = {}

    def load(self, settings: Settings, checkpoints: Sequence[Checkpoint], *, every_shape: bool = True) -> Model:
        """As `load_model`."""
        folders = (f"{each.folder} {each.digest}" for each in checkpoints)
        key = (settings.model_dump_json(include=_DECIDING), *folders)
        if key not in self._loaded:
            self._loaded[key] = self._load(settings, checkpoints, every_shape=every_shape)
        return self._loaded[key]


@pytest.fixture(scope="session")
def _models() -> _Models:
    return _Models()


@pytest.fixture
def shared_models(_models: _Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process load a model once for all tests, with a short warm-up."""
    for name, value in QUICK_TO_START.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("enricher.worker.wiring.loaded_tasks.load_model", _models.load)
