"""How far the group is behind, and how old the oldest unprocessed record is.

`backlog` is what is known at one moment, `reading` asks the brokers for it, and `command` prints it.
"""
