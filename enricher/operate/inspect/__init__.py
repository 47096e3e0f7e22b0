"""Reads topics and groups without joining a group: for `lag`, `tail`, `verify`, `doctor`.

`inspector` asks about topics and groups, `follow` reads topics as they grow. Nothing here commits an offset, writes a
record, or decides what a worker does.
"""
