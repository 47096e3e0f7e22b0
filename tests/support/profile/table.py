"""The figures of all processes of a run as two tables in Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHOWN = 25


def write_tables(folder: Path, wall_s: float) -> str:
    """Write `causes.md`, `files.md` and `profile.json`; returns the table of causes and the beginning of that of files."""
    processes = [json.loads(path.read_text()) for path in folder.glob("process-*.json")]
    children = [json.loads(path.read_text()) for path in folder.glob("child-*.json")]
    files = _files(processes)
    causes = _causes(processes, children, sum(processor for _, processor in files.values()))
    waiting_s = sum(max(0.0, wall - processor) for wall, processor in files.values())
    by_cause = _table(("cause", "processor s"), [(name, f"{seconds:.0f}") for name, seconds in causes.items()])
    by_cause += (
        f"\nWall time {wall_s:.0f} s; the files' tests waited for {waiting_s:.0f} s (wall beyond processor time).\n"
    )
    ordered = sorted(files.items(), key=lambda each: -each[1][1])
    rows = [(name, f"{wall:.1f}", f"{processor:.1f}") for name, (wall, processor) in ordered]
    heads = ("file", "wall s", "processor s")
    (folder / "causes.md").write_text(by_cause)
    (folder / "files.md").write_text(_table(heads, rows))
    (folder / "profile.json").write_text(json.dumps({"wall": wall_s, "causes": causes, "files": files}, indent=1))
    for path in (*folder.glob("process-*.json"), *folder.glob("child-*.json")):
        path.unlink()
    return f"{by_cause}\n{_table(heads, rows[:_SHOWN])}\nAll files: {folder / 'files.md'}"


def _files(processes: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Wall and processor seconds of each file, of all processes that had tests of it."""
    wall: Counter[str] = Counter()
    processor: Counter[str] = Counter()
    for process in processes:
        for name, spent in process["files"].items():
            wall[name] += spent["wall"]
            processor[name] += spent["processor"]
    return {name: (wall[name], processor[name]) for name in wall}


def _causes(processes: list[dict[str, Any]], children: list[dict[str, Any]], total_s: float) -> dict[str, float]:
    """Processor seconds by cause; together they are the total."""
    java = sum(process["java"] for process in processes)
    ready = sum(process["java_ready"] for process in processes)
    started = sum(process["java_processes"] for process in processes)
    seen = Counter[str]()
    for process in processes:
        seen.update(process["python"])
    imports = sum(child["imports"] for child in children)
    models = sum(child["models"] for child in children)
    # A short process may have ended before anyone looked; it has told its imports and models itself.
    told = {str(child["pid"]): child["imports"] + child["models"] for child in children}
    python = sum(max(seen[pid], told.get(pid, 0.0)) for pid in {*seen, *told})
    own = Counter[str]()
    for process in processes:
        own.update(process["causes"])
    collection = sum(process["files"].get("collection", {"processor": 0.0})["processor"] for process in processes)
    rest = total_s - java - python - own["own"]
    return {
        f"Java: starting {started} processes": ready,
        "Java: serving": java - ready,
        f"started Python: interpreters and imports of {len(children)} processes": imports,
        "started Python: loading models": models,
        "started Python: the rest": python - imports - models,
        "test processes: imports and collection": collection,
        "test processes: loading models": own["models"],
        "test processes: examples of properties": own["properties"],
        "test processes: the rest": own["own"] - collection - own["models"] - own["properties"],
        "other processes, and what nobody saw": rest,
    }


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) + ("---:",) * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
