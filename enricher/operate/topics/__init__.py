"""Topics as an administrator sees them: created with the right settings, described, and their group's state."""
