"""The stub worker with a model that is called as the folder of `model.source`: records tell which setting reached it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from support.stub_worker import install

from enricher import cli
from enricher.worker.settings import load_settings
from tools.chaos.stub import CARD, StubEngine

SOURCED_STUB_WORKER = __file__


def engine() -> StubEngine:
    """The same labels under that name."""
    stub = StubEngine()
    stub.card = replace(CARD, name=PurePath(load_settings().model.source).name)
    return stub


if __name__ == "__main__":
    install(engine)
    cli.main()
