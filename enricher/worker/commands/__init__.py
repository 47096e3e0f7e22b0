"""The commands of the worker itself, and the modules that all commands share: `console`, `running`, `topic_options`."""
