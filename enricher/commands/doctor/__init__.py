"""`enricher doctor`: can this worker run here? `broker`, `trials` and `machine` look, `findings` is what they say."""

from enricher.commands.doctor.command import doctor

__all__ = ["doctor"]
