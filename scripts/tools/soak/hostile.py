"""`scripts/soak --hostile`: for each attack a worker with default settings, its peak memory, and the fate of all records."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer

from enricher.errors import NotEnriched
from tools import enricher_command, markdown
from tools.bench.machine import describe
from tools.bench.printing import write_figures
from tools.kafka import Cluster
from tools.soak.attacks import Attack, FileAttack, article, attacks, file_attacks
from tools.topics import Topics, configure

LIMIT_BYTES = 1_500_000_000
"""The memory limit for every attack at default settings."""
CEILING_BYTES = 6_000_000_000
"""Memory limit of the process, because a swapping machine measures nothing. A worker that dies of it has failed."""
_LARGEST_BYTES = 1_000_000_000
"""Largest batch that the publisher compresses into one message."""
TIMEOUT_S = 2_400.0
"""Limit for the records of one attack; a million characters that are all tokens take about 10 s."""
_LOOK_EVERY_S = 0.05
"""The system records the peak; only growth between the last look and the end is missed."""
Say = Callable[[str], None]
_COLUMNS = (
    "attack", "refused by the broker", "taken", "enriched", "dead letters", "peak memory, MB", "seconds", "holds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one attack."""

    attack: str
    what: str
    accepted: int
    refused: int
    enriched: int
    dead_letters: int
    peak_bytes: int
    seconds: float
    exit_code: int
    good: int = 0
    """Ordinary articles among the accepted records, all of which must be enriched."""

    @property
    def holds(self) -> bool:
        """Whether every accepted record came out, within the memory limit."""
        came_out = self.enriched + self.dead_letters == self.accepted and self.enriched >= self.good
        return came_out and self.exit_code == 0 and self.peak_bytes <= LIMIT_BYTES


def run(names: Sequence[str], share: float, say: Say) -> list[Row]:
    """Run all attacks, or those with these names, each with `share` of its records."""
    rows = []
    with Cluster(nodes=1) as cluster:
        for attack in attacks():
            if not names or attack.name in names:
                rows.append(_through_kafka(attack, cluster.bootstrap_servers, share))
                say(_line(rows[-1]))
    for attack_on_file in file_attacks():
        if not names or attack_on_file.name in names:
            rows.append(_through_a_file(attack_on_file, share))
            say(_line(rows[-1]))
    return rows


def table(rows: Sequence[Row]) -> str:
    cells = [
        [
            row.what,
            *(f"{each:,}" for each in (row.refused, row.accepted, row.enriched, row.dead_letters)),
            f"{row.peak_bytes / 1e6:,.0f}",
            f"{row.seconds:.0f}",
            "yes" if row.holds else f"no (exit code {row.exit_code})",
        ]
        for row in rows
    ]
    return "\n".join(markdown.table(_COLUMNS, cells))


def write(folder: Path, rows: Sequence[Row], share: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hostile.md").write_text(f"{table(rows)}\n", "utf-8")
    figures = {
        "machine": describe(),
        "share": share,
        "limit_bytes": LIMIT_BYTES,
        "rows": [asdict(row) for row in rows],
    }
    write_figures(folder / "hostile.json", figures)


def _line(row: Row) -> str:
    return (
        f"{row.attack}: {row.peak_bytes / 1e6:.0f} MB, {row.seconds:.0f} s, {'holds' if row.holds else 'DOES NOT HOLD'}"
    )


def _through_kafka(attack: Attack, bootstrap_servers: str, share: float) -> Row:
    topics = Topics.fresh(bootstrap_servers, "hostile")
    environment = topics.variables("hostile") | {
        "ENRICHER_DEAD_LETTERS__MAX_IN_A_ROW": "0",
        "ENRICHER_DEAD_LETTERS__MAX_RATIO": "0",
    }
    _make_topics(environment)
    if attack.topic:
        configure(bootstrap_servers, topics.input, attack.topic)
    accepted, refused = _publish(bootstrap_servers, topics.input, attack, share)
    with _registry(attack) as settings:
        environment |= {f"ENRICHER_{name}": value for name, value in settings.items()}
        code, peak, seconds = measure(environment, "run", "--until-caught-up")
    report = json.loads(enricher_command.answer_of("verify", "--json", variables=environment).stdout or "{}")
    facts: dict[str, int] = report.get("facts", {})
    doubled = [check for check in report.get("checks", ()) if check["state"] == "failed"]
    return Row(
        attack.name, attack.what, accepted, refused, facts.get("records", 0), facts.get("dead letters", 0),
        peak, seconds, code or (8 if doubled else 0), attack.good,
    )  # fmt: skip


@contextmanager
def _registry(attack: Attack) -> Iterator[Mapping[str, str]]:
    """The settings of the attack, with the URL of a registry that has its schema if it needs one."""
    if attack.registered is None:
        yield attack.settings
        return
    answer = orjson.dumps(attack.registered)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as cache:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield {**attack.settings, "REGISTRY__URL": url, "REGISTRY__CACHE_DIR": cache}
        server.shutdown()


def _through_a_file(attack: FileAttack, share: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path, lines = attack.write(Path(folder), share)
        output, letters = Path(folder) / "out.jsonl", Path(folder) / "dead.jsonl"
        arguments = ("enrich", str(path), "-o", str(output), "--dead-letters", str(letters))
        code, peak, seconds = measure({}, *arguments)
        enriched, dead = (_lines(each) for each in (output, letters))
    as_said = code == NotEnriched.exit_code and not enriched
    return Row(attack.name, attack.what, lines, 0, enriched, dead, peak, seconds, 0 if as_said else code)


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def measure(environment: Mapping[str, str], *arguments: str) -> tuple[int, int, float]:
    """Exit code, peak resident bytes as the system counted them, and seconds, of one command.

    The peak is the process's own and that of its largest child, which compiles schemas.
    """
    began_s, own_bytes, child_bytes = time.monotonic(), 0, 0
    silent = subprocess.DEVNULL
    process = enricher_command.start(*arguments, variables=environment, stdout=silent, stderr=silent)
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_DATA, (CEILING_BYTES, CEILING_BYTES))
    while process.poll() is None:
        own_bytes = max(own_bytes, peak_bytes(process.pid))
        child_bytes = max([child_bytes, *map(peak_bytes, _children(process.pid))])
        if time.monotonic() - began_s > TIMEOUT_S:
            process.kill()
        time.sleep(_LOOK_EVERY_S)
    return process.returncode, own_bytes + child_bytes, time.monotonic() - began_s


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:  # it has just ended
        return []


def peak_bytes(pid: int) -> int:
    """The peak of a process so far; 0 if it has ended.

    Not from `wait4`: that counts what the process was before it became this program, a copy of ourselves.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:  # it has just ended
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _make_topics(variables: Mapping[str, str]) -> None:
    enricher_command.answer_of("topics", "create", "--partitions", "2", variables=variables).check_returncode()


def _publish(bootstrap_servers: str, topic: str, attack: Attack, share: float) -> tuple[int, int]:
    """Publish; returns how many records the broker accepted, and how many it refused."""
    answers: list[bool] = []
    properties: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": attack.codec,
        "message.max.bytes": _LARGEST_BYTES,
        "queue.buffering.max.kbytes": 2 * _LARGEST_BYTES // 1024,
        "log_level": 0,
    }
    producer = Producer(properties)
    good = ((article("Anna met Bob in Paris."), 1) for _ in range(attack.good))
    for number, (value, partition) in enumerate(chain(((value, 0) for value in attack.values(share)), good)):
        producer.produce(
            topic,
            value,
            b"%d" % number,
            partition=partition,
            headers=list(attack.headers) or None,
            on_delivery=lambda error, _message: answers.append(error is None),
        )
        producer.flush(120)  # one batch per record: data queued here is not part of the measurement
    return sum(answers), len(answers) - sum(answers)
