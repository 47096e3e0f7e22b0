"""`enricher publish`: JSON lines into the input topic. `lines` reads, `command` sends and counts."""

from enricher.commands.publish.command import publish

__all__ = ["publish"]
