"""Pure rules: windows, batches, spans and offsets.

No clock (time is an argument), no I/O, no logging, no threads; only the standard library and numpy.
"""
