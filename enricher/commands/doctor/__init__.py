"""`enricher doctor`: can this worker run here? `command` runs the checks, `findings` is what they return.

`broker`, `trials` and `machine` hold the usual checks, `transactions` those of `--transactions`.
"""
