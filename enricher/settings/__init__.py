"""The settings: the groups, one file for each kind of thing, and the only reader of the environment (`sources`)."""

from enricher.settings.articles import ArticleSettings, OutputSettings
from enricher.settings.files import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    log_files,
    settings_files,
    variable_name,
)
from enricher.settings.groups import BatchingSettings
from enricher.settings.kafka import FromFile
from enricher.settings.registry import RegistrySettings
from enricher.settings.sources import Settings, load_settings
from enricher.settings.tasks import TaskSettings

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
    "TaskSettings",
    "load_settings",
    "log_files",
    "settings_files",
    "variable_name",
]
