"""The soak behind scripts/soak: one worker, steady load, and its memory over time."""
