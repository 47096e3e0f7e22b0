"""Peer (b): the same model behind FastAPI, one text per request, and the worker that asks it, several requests at a time.

    python -m tools.bench.peers.http server FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE THREADS    # tells its address
    python -m tools.bench.peers.http worker FOLDER

Options of an order for the worker: `url` of the server, `requests_at_once`.
"""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import httpx
import orjson
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tools.bench.child import tell
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.records import Article, Found, Span, encode, model_card, text_of
from tools.bench.peers.transfer import Enrich, Options, obey

RUNS_AT_ONCE = 16
"""As many as the client's concurrent requests at most, so that none waits for another in the server."""
_TIMEOUT_S = 60.0


class Question(BaseModel):
    """The body of a request."""

    text: str


def service(model: OnnxModel) -> FastAPI:
    """The application. Handlers are plain `def`: FastAPI runs them in its thread pool, and ONNX Runtime releases the GIL."""
    app = FastAPI()

    @app.post("/entities")
    def entities(question: Question) -> Found:
        (found,) = model.find([question.text])
        return found

    return app


def serve(folder: Path, window_tokens: int, overlap_tokens: int, device: str, threads: int) -> None:
    model = OnnxModel(
        folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, threads=threads, callers=RUNS_AT_ONCE,
        device=device,
    )  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0))
    tell({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"})
    config = uvicorn.Config(service(model), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


@cache
def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=_TIMEOUT_S)


def work(folder: Path) -> None:
    card = model_card(folder / "model.onnx", "as exported")

    def make(options: Options) -> Enrich:
        client, pool = _client(options["url"]), ThreadPoolExecutor(options["requests_at_once"])

        def enrich(article: Article) -> bytes:
            response = client.post("/entities", json={"text": text_of(article)}).raise_for_status()
            answer = orjson.loads(response.content)
            return encode(article, Found([Span(**span) for span in answer["spans"]], answer["coverage"]), card)

        return lambda articles: list(pool.map(enrich, articles))

    obey(make)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work(Path(sys.argv[2]))
    else:
        serve(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
