"""The settings: the groups, one file for each kind of thing, and the only reader of the environment (`sources`)."""

from enricher.worker.settings.articles import ArticleSettings, OutputSettings
from enricher.worker.settings.files import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    log_files,
    settings_files,
    variable_name,
)
from enricher.worker.settings.groups import BatchingSettings
from enricher.worker.settings.index import IndexSettings
from enricher.worker.settings.kafka import FromFile
from enricher.worker.settings.registry import RegistrySettings
from enricher.worker.settings.sources import Settings, given_settings, load_settings
from enricher.worker.settings.tasks import TaskSettings

__all__ = [
    "CONFIG_REASON",
    "CONFIG_VARIABLE",
    "DEFAULT_CONFIG_FILE",
    "ArticleSettings",
    "BatchingSettings",
    "FromFile",
    "IndexSettings",
    "OutputSettings",
    "RegistrySettings",
    "Settings",
    "TaskSettings",
    "given_settings",
    "load_settings",
    "log_files",
    "settings_files",
    "variable_name",
]
