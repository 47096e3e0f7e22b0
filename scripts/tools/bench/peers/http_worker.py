"""Peer (b), the worker: asks the model server, one article per request, several requests at a time.

    python -m tools.bench.peers.http_worker FOLDER

Options of an order: `url` of the server, `requests_at_once`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import httpx
import orjson

from tools.bench.peers.records import Article, Found, Span, encode, model_card, text_of
from tools.bench.peers.transfer import Enrich, Options, obey

_TIMEOUT_S = 60.0


@cache
def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=_TIMEOUT_S)


def asking(client: httpx.Client, card: Mapping[str, str]) -> Callable[[Article], bytes]:
    """A function that enriches one article by asking the server."""

    def enrich(article: Article) -> bytes:
        response = client.post("/entities", json={"text": text_of(article)}).raise_for_status()
        answer = orjson.loads(response.content)
        return encode(article, Found([Span(**span) for span in answer["spans"]], answer["coverage"]), card)

    return enrich


def main(folder: Path) -> None:
    card = model_card(folder / "model.onnx", "fp32")

    def make(options: Options) -> Enrich:
        pool, enrich = ThreadPoolExecutor(options["requests_at_once"]), asking(_client(options["url"]), card)
        return lambda articles: list(pool.map(enrich, articles))

    obey(make)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
