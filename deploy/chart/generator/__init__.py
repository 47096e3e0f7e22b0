"""Generates the Helm chart's schema, its copy of the settings' defaults, and the table of values in its README."""
