"""`enricher lag`: how far the group is behind, and how old that makes the oldest record."""

from enricher.commands.lag.command import lag

__all__ = ["lag"]
