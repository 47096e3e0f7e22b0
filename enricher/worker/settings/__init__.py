"""The settings: groups of fields, and the only reader of the environment (`sources`)."""

from enricher.worker.settings.articles import ArticleSettings, OutputSettings
from enricher.worker.settings.connections import IndexSettings, RegistrySettings
from enricher.worker.settings.group import FromFile
from enricher.worker.settings.sources import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    Settings,
    given_settings,
    load_settings,
    log_settings_file,
    settings_file,
    variable_name,
)
from enricher.worker.settings.worker import BatchingSettings, TaskSettings
