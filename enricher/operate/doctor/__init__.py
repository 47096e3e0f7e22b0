"""`enricher doctor`: can this worker run here? `command` asks one question after the other, one file each.

`findings` is what their checks return. For `--transactions` alone, `transactions` tries the `promises` of the broker with
clients of their own.
"""
