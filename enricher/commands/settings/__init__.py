"""`enricher settings`: every setting, for people, for the page in `deploy/`, for machines. `rows` knows them all."""

from enricher.commands.settings.command import show_settings

__all__ = ["show_settings"]
