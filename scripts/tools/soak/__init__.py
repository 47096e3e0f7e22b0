"""`scripts/soak`: one worker under steady load, and its memory over time."""
