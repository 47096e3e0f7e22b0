"""`enricher model prepare`: any checkpoint -> a self-contained folder that a worker runs, gate report included."""

from enricher.commands.model.prepare.command import model_prepare

__all__ = ["model_prepare"]
