"""The commands of the worker itself, and what all commands share: `console`, `running`, `topic_options`."""
