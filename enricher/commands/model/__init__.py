"""The commands about models: prepare a folder, check a precision, inspect, tune."""

from enricher.commands.model.check import model_check
from enricher.commands.model.inspect import model_inspect
from enricher.commands.model.prepare import model_prepare
from enricher.commands.model.tune import model_tune

__all__ = ["model_check", "model_inspect", "model_prepare", "model_tune"]
