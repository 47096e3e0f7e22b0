"""`enricher model tune`: how large batches should be and how many run at once, measured on this machine."""

from enricher.commands.model.tune.command import model_tune

__all__ = ["model_tune"]
