"""`enricher topics create`: `plan` decides what to create, `command` does it and says so."""

from enricher.commands.topics.command import topics_create

__all__ = ["topics_create"]
