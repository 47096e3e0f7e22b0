"""`enricher doctor`: can this worker run here? `command` asks one question after the other, one file each.

`findings` is what their checks return. `transactions` is for `--transactions` alone.
"""
