"""`enricher replay`: a bounded range of the input topic through the same worker, into topics of its own.

`ranges` turns its two bounds into offsets, `pinning` commits these for a group of their own, and then the worker reads on
from there to the end of the range, like any worker of any group.
"""
