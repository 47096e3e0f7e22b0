"""Plumbing of the process: the watchdog, what wakes and stops the loop, and the names of devices. Knows no other package."""
