"""`enricher dead-letters`: counts dead letters, shows one, sends them back to the input topic exactly once.

`accepting` lets workers go on where one ended at its limit of dead letters.

`letters` says what a dead letter carries, `settled` which are done, `newer` which are superseded; `sender` makes the
transactions, and `redriving` is the run around them.
"""
