"""Verifies exactly-once, from the topics alone: every committed input once in the output or the dead letters.

Reads with clients and code of its own: of the worker it knows the schemas of the headers, and how to reach the broker. So
what is wrong in the worker cannot be wrong here in the same way.
"""

from enricher.verify.findings import EARLIER, Check, Checks, Place, Report
from enricher.verify.payload import Recompute
from enricher.verify.sampling import watching
from enricher.verify.verification import verify
from enricher.verify.watch import OffsetWatch
from enricher.verify.wishes import Wishes

__all__ = ["EARLIER", "Check", "Checks", "OffsetWatch", "Place", "Recompute", "Report", "Wishes", "verify", "watching"]
