"""A naive loop without a model: poll, write what came in one transaction. What Kafka alone costs a worker in latency.

python -m tools.bench.peers.naive_worker    # orders on standard input, as the peers get them
"""

from __future__ import annotations

from tools.bench.peers.records import Article, Found, encode
from tools.bench.peers.transfer import Enrich, Options, obey

_CARD = {"name": "none", "digest": "", "precision": ""}


def make(_options: Options) -> Enrich:
    def enrich(articles: list[Article]) -> list[bytes]:
        return [encode(article, Found([], {"truncated": False}), _CARD) for article in articles]

    return enrich


if __name__ == "__main__":
    obey(make)
