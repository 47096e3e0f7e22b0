"""The stub worker with another model, as far as records tell: another name and digest. A program, like `stub_worker`."""

from __future__ import annotations

from enricher import cli
from enricher.worker.records import ModelCard
from support.stub_worker import install
from tools.chaos.stub import StubEngine

OTHER_STUB_WORKER = __file__
OTHER_CARD = ModelCard(name="other stub", digest="1" * 64, precision="fp32")


class OtherEngine(StubEngine):
    """The same labels."""

    card = OTHER_CARD


if __name__ == "__main__":
    install(OtherEngine)
    cli.main()
