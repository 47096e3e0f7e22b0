"""Peer (b), the server: the same model behind FastAPI, one text per request.

    python -m tools.bench.peers.http_server FOLDER WINDOW_TOKENS OVERLAP_TOKENS DEVICE THREADS

Tells its address when ready.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tools.bench.child import tell
from tools.bench.peers.onnx_worker import OnnxModel
from tools.bench.peers.records import Found

RUNS_AT_ONCE = 16
"""More than the client's concurrent requests, so that none waits for another here."""


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


def main(folder: Path, window_tokens: int, overlap_tokens: int, device: str, threads: int) -> None:
    model = OnnxModel(
        folder, window_tokens=window_tokens, overlap_tokens=overlap_tokens, threads=threads, callers=RUNS_AT_ONCE,
        device=device,
    )  # fmt: skip
    listening = socket.create_server(("127.0.0.1", 0))
    tell({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"})
    config = uvicorn.Config(service(model), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
