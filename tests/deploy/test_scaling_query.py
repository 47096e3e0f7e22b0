"""The Prometheus query of deploy/scaling.md, run by Prometheus' own tool on invented workers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.programs import found, missing

PAGE = Path(__file__).parents[2] / "deploy" / "scaling.md"
PROMTOOL = found("promtool")


def query() -> str:
    """The query as printed on the page."""
    printed = re.search(r"```promql\n(ceil\(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert printed
    return printed[1]


def workers(count: int, *, share: float, age_s: float, partitions: int) -> list[dict[str, str]]:
    """Series of workers with two threads each, busy for `share` of their time."""
    concurrency, every_s = 2, 15
    series = {
        "enricher_engine_busy_time_seconds_total": f"0+{share * concurrency * every_s}x40",
        "enricher_engine_concurrency": f"{concurrency}x40",
        "enricher_oldest_age_seconds": f"{age_s}x40",
        "enricher_partitions": f"{partitions / count}x40",
    }
    return [
        {"series": f'{name}{{job="enricher", pod="enricher-{number}"}}', "values": values}
        for name, values in series.items()
        for number in range(count)
    ]


CASES = [
    (2, 0.5, 0.3, 24, 2),
    (4, 0.3, 0.3, 24, 2),
    (2, 0.99, 5, 24, 3),
    (2, 1.0, 90, 24, 4),
    (4, 1.0, 3600, 24, 12),
    (8, 1.0, 0.3, 24, 12),
    (20, 0.6, 5, 24, 24),
    (2, 0.0, 0.3, 24, 0),
    (4, 1.0, 3600, 6, 6),
]
"""Workers, the share of their time in which they are busy, the oldest record's age, partitions; and the workers wanted."""


@pytest.mark.skipif(PROMTOOL is None, reason=missing("promtool"))
def test_the_query_asks_for_the_workers_that_it_takes(tmp_path: Path) -> None:
    """Fewer if they are idle, more if they are busy or late; each has as many partitions, and none is without one."""
    rules = {"groups": [{"name": "scaling", "rules": [{"record": "wanted_workers", "expr": query()}]}]}
    tests = []
    for count, share, age_s, partitions, wanted in CASES:
        series = workers(count, share=share, age_s=age_s, partitions=partitions)
        samples = [{"labels": "wanted_workers", "value": wanted}]
        expected = {"expr": "wanted_workers", "eval_time": "5m", "exp_samples": samples}
        tests.append({"interval": "15s", "input_series": series, "promql_expr_test": [expected]})
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), "utf-8")
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
