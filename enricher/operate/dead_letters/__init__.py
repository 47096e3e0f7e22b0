"""`enricher dead-letters`: counts dead letters, shows one, sends them back to the input topic exactly once.

`letters` says what a dead letter carries, and which are done or superseded; `sender` makes the transactions, and `redriving`
is the run around them.
"""
