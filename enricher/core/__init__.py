"""The pure core: windows, batches, spans and offsets.

No clock (time is an argument), no I/O, no logging, no threads; the standard library and numpy only.
"""
