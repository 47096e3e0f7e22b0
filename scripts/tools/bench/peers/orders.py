"""How the bench tells a worker what to do next: a line of JSON on standard input, answered by one on standard output.

So a worker loads its model once, as in service, and runs as often as the bench wants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from tools.bench.peers.transfer import Enrich, Route, transfer

Options = dict[str, Any]
"""What a worker may do one way or another, such as its batch size: the bench tries, and takes the best."""


def obey(make: Callable[[Options], Enrich]) -> None:
    """Carry out orders until standard input ends. `make` gives what enriches with the options of an order."""
    for line in sys.stdin.buffer:
        order = orjson.loads(line)
        done = transfer(Route(**order["route"]), make(order["options"]), articles=order["articles"])
        sys.stdout.write(f"{orjson.dumps(asdict(done)).decode()}\n")
        sys.stdout.flush()
