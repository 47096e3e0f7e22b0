"""`enricher dead-letters`: counts dead letters, shows one, sends them back to the input topic exactly once.

`letters` reads dead letters, and knows which of them are done or superseded; `sender` makes the transactions, and
`redriving` is the run around them.
"""
