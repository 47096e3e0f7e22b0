"""The settings: the groups, one file for each kind of thing, and the only reader of the environment (`sources`)."""

from enricher.settings.articles import ArticleSettings, OutputSettings
from enricher.settings.groups import BatchingSettings
from enricher.settings.kafka import FromFile
from enricher.settings.registry import RegistrySettings
from enricher.settings.sources import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    Settings,
    load_settings,
    log_files,
    settings_files,
    variable_name,
)

__all__ = [
    "CONFIG_REASON",
    "CONFIG_VARIABLE",
    "DEFAULT_CONFIG_FILE",
    "ArticleSettings",
    "BatchingSettings",
    "FromFile",
    "OutputSettings",
    "RegistrySettings",
    "Settings",
    "load_settings",
    "log_files",
    "settings_files",
    "variable_name",
]
