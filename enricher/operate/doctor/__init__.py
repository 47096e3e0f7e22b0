"""`enricher doctor`: can this worker run here? `command` runs the checks, `findings` is what they return.

`broker`, `rights` and `machine` hold the usual checks, `transactions` those of `--transactions`.
"""
