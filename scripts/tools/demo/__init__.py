"""`scripts/demo`: publishes real articles to a real broker, runs the real commands, and shows the results."""
