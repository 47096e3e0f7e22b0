"""The protocol between bench and peer: an order as a line of JSON on standard input, an answer on standard output.

So a peer loads its model once, as a service would, and runs as often as the bench asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import orjson

from tools.bench.child import tell
from tools.bench.peers.transfer import Enrich, Route, transfer

Options = dict[str, Any]
"""Options of a worker, such as its batch size; the bench tries several and uses the best."""


def obey(make: Callable[[Options], Enrich]) -> None:
    """Execute orders until standard input ends. `make` builds the enriching function for an order's options."""
    for line in sys.stdin.buffer:
        order = orjson.loads(line)
        done = transfer(Route(**order["route"]), make(order["options"]), articles=order["articles"])
        tell(done)
