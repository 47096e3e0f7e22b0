"""Plumbing: the watchdog, deadlines and events that end waits, repeated log lines, and device names."""
