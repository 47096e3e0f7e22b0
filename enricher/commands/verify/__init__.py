"""The command `verify`: does what stands in the topics keep the promise? `enricher.verify` finds out."""

from enricher.commands.verify.command import verify

__all__ = ["verify"]
