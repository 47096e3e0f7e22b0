"""The path of an article, from poll to commit: all that runs at night. Imports nothing of the wings."""
