"""The path of an article, from poll to commit: everything that runs at night. Imports nothing of the wings."""
