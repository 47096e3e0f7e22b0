"""`enricher dead-letters`: counts dead letters, shows one, and sends them back to the input topic exactly once.

`letters` says what a dead letter carries, `settled` which are done, `newer` which are superseded; `sender` makes the
transactions, and `redriving` is the run around them.
"""
