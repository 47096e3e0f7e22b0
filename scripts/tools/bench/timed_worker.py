"""The stub worker, which answers every command with when its partitions came and went; once more when it has ended.

It joins its group on the command `{"join": true}`: the start of a process takes too different times to be part of a run.

python -m tools.bench.timed_worker    # as tools.bench.stub_worker
"""

from __future__ import annotations

from typing import Any

from enricher.worker.loop.loop import Worker
from enricher.worker.settings import Settings
from tools.bench import stub_worker
from tools.bench.moments import DEBUG, Moments
from tools.changed_settings import change


def _with_debug_lines(settings: Settings) -> Settings:
    return change(settings, kafka={"properties": {**settings.kafka.properties, **DEBUG}})


def main() -> None:
    moments = Moments()

    def answer(worker: Worker) -> dict[str, Any]:
        return {"moments": moments.taken(), "recoveries": worker.counters.recoveries}

    with moments.noting():
        stub_worker.main(_with_debug_lines, answer, waits=True)


if __name__ == "__main__":
    main()
