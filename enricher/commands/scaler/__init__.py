"""`enricher scaler`: tells KEDA how many workers there should be. What it says is decided in `enricher.scaling`."""

from enricher.commands.scaler.command import scaler

__all__ = ["scaler"]
