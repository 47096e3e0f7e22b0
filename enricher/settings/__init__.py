"""The settings: the groups (`kafka`, `groups`, `operating`), and the only reader of the environment (`sources`)."""

from enricher.settings.groups import ArticleSettings, BatchingSettings
from enricher.settings.kafka import FromFile
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
    "Settings",
    "load_settings",
    "log_files",
    "settings_files",
    "variable_name",
]
