"""Tools for the people who run workers: they check, watch, verify and scale from outside, through the topics alone."""
