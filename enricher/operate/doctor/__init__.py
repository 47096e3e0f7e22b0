"""`enricher doctor` checks whether this worker can run here. `command` runs the checks; each question has its own file.

`findings` has the result type of the checks. For `--transactions` alone, `transactions` tries the `promises` of the
broker with their own clients.
"""
