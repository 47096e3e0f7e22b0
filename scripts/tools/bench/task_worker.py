"""A worker with its tasks in its own process, for the leg `tasks`: it joins its group on command, and ends caught up.

python -m tools.bench.task_worker    # settings as JSON on standard input, then commands (see tools.bench.obeying)
"""

from __future__ import annotations

from enricher.worker.build.loaded_tasks import load_tasks
from tools.bench.obeying import read_settings, run_obeying


def main() -> None:
    settings = read_settings()
    run_obeying(settings, load_tasks(settings), waits=True, until_caught_up=True)


if __name__ == "__main__":
    main()
