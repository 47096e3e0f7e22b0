"""The worker with its real models, which answers commands with what it has done.

python -m tools.bench.real_worker    # settings as JSON on standard input, then commands (see Child)
"""

from __future__ import annotations

import logging
import sys

import orjson

from enricher.worker.build.loaded_tasks import load_tasks
from enricher.worker.settings import Settings
from tools.bench.obeying import run_obeying


def main() -> None:
    """Run the worker until the input ends."""
    logging.basicConfig(level=logging.ERROR)
    settings = Settings(**orjson.loads(sys.stdin.buffer.readline()))
    run_obeying(settings, load_tasks(settings))


if __name__ == "__main__":
    main()
