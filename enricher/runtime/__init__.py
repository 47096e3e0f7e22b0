"""Plumbing: the watchdog, the wakeup and stop events of the loop, and device names."""
