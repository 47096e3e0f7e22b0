"""`enricher doctor`: can this worker run here? `broker`, `trials` and `machine` look, `findings` is what they say.

`transactions` is for `--transactions`, which tries the broker more deeply.
"""

from enricher.commands.doctor.command import doctor

__all__ = ["doctor"]
