"""Runs the legs in turn and prints the ratio."""

from __future__ import annotations

import logging
import platform
import statistics
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from benchmark.legs import Leg, bare, kafka_to_kafka
from broker import Cluster
from enricher.app import load_model
from enricher.settings import load_settings

SAMPLES = Path(__file__).resolve().parent.parent / "articles" / "wikinews.jsonl"
PROCESSOR = Path("/proc/cpuinfo")


def main(
    repetitions: Annotated[int, typer.Option(min=1, help="How often each leg runs, in turn.")] = 5,
    copies: Annotated[int, typer.Option(min=1, help="How often each of the 43 articles is published.")] = 2,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """The worker, Kafka to Kafka, against its bare model on the same windows in the same process."""
    logging.basicConfig(level=logging.ERROR)
    console = Console(stderr=True)
    articles = _articles(copies)
    model = load_model(load_settings())
    around: list[Leg] = []
    alone: list[Leg] = []
    counts: dict[str, Any] = {}
    with Cluster(nodes=1) as cluster, console.status("measuring") as status:
        cluster.warm_up()
        for number in range(repetitions):
            status.update(f"repetition {number + 1} of {repetitions}: bare model")
            alone.append(bare(model, load_settings(), articles))
            status.update(f"repetition {number + 1} of {repetitions}: Kafka to Kafka")
            leg, counts = kafka_to_kafka(model, cluster.bootstrap_servers, articles)
            around.append(leg)
    figures = _figures(articles, alone, around, counts)
    Console().print(_table(figures))
    if json:
        json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))


def _articles(copies: int) -> list[bytes]:
    samples = [orjson.loads(line) for line in SAMPLES.read_bytes().splitlines()]
    return [orjson.dumps(s | {"id": f"{s['id']}#{copy}"}) for copy in range(copies) for s in samples]


def _figures(articles: list[bytes], alone: list[Leg], around: list[Leg], counts: dict[str, Any]) -> dict[str, Any]:
    ratios = sorted(a.seconds / b.seconds for a, b in zip(alone, around, strict=True))
    return {
        "processor": _processor(),
        "articles": len(articles),
        "repetitions": len(ratios),
        "bare_articles_per_s": len(articles) / statistics.median(leg.seconds for leg in alone),
        "worker_articles_per_s": len(articles) / statistics.median(leg.seconds for leg in around),
        "ratio_median": statistics.median(ratios),
        "ratio_lowest": ratios[0],
        "ratio_highest": ratios[-1],
        "others_cores_bare": statistics.median(leg.others_cores for leg in alone),
        "others_cores_worker": statistics.median(leg.others_cores for leg in around),
        "padding_share": counts["padding_share"],
        "transactions": counts["transactions"],
        "real_tokens": counts["real_tokens"],
    }


def _processor() -> str:
    if PROCESSOR.is_file():
        names = [line.partition(":")[2].strip() for line in PROCESSOR.read_text().splitlines() if "model name" in line]
        flags = PROCESSOR.read_text()
        amx = ", AMX" if "amx_bf16" in flags else ""
        return f"{len(names)} x {names[0]}{amx}" if names else platform.processor()
    return platform.processor()


def _table(figures: dict[str, Any]) -> Table:
    table = Table(title=f"{figures['articles']} articles, {figures['processor']}", title_justify="left")
    for column in ("", "articles/s", "other processes, cores"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("bare model", f"{figures['bare_articles_per_s']:.2f}", f"{figures['others_cores_bare']:.2f}")
    table.add_row(
        "worker, Kafka to Kafka", f"{figures['worker_articles_per_s']:.2f}", f"{figures['others_cores_worker']:.2f}"
    )
    spread = f"{figures['ratio_lowest']:.3f} to {figures['ratio_highest']:.3f}"
    table.add_row("ratio (median)", f"{figures['ratio_median']:.3f}", spread)
    return table


if __name__ == "__main__":
    typer.run(main)
