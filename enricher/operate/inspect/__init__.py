"""Reads topics and groups without joining a group: for `lag`, `tail`, `verify`, `doctor` and the scaler.

`inspector` asks about topics and groups, `consumer` reads assigned partitions; `follow` and `ranges` build on it. Nothing
here commits an offset, writes a record, or decides what a worker does.
"""
