"""The settings: the groups (`kafka`, `groups`, `operating`), and the only reader of the environment (`sources`)."""

from enricher.settings.groups import (
    ArticleSettings,
    BatchingSettings,
    ModelSettings,
    WorkerSettings,
)
from enricher.settings.kafka import FromFile, KafkaSettings
from enricher.settings.sources import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    PREFIX,
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
    "PREFIX",
    "ArticleSettings",
    "BatchingSettings",
    "FromFile",
    "KafkaSettings",
    "ModelSettings",
    "Settings",
    "WorkerSettings",
    "load_settings",
    "log_files",
    "settings_files",
    "variable_name",
]
