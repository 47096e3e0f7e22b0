"""`enricher tail`: records as they appear. `excerpts` finds what to show, `show` draws it, `command` follows the topic."""

from enricher.commands.tail.command import tail

__all__ = ["tail"]
