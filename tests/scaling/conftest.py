"""A client as KEDA's is: made by gRPC's own compiler, from KEDA's own contract."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_tools import protoc

from enricher.scaling import keda
from enricher.scaling.keda import externalscaler_pb2

PROTOCOL = Path(keda.__file__).parent / "externalscaler.proto"


@pytest.fixture(scope="session")
def stub_class(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """KEDA's client, for Python."""
    folder = tmp_path_factory.mktemp("stub")
    assert protoc.main(["", f"--proto_path={PROTOCOL.parent}", f"--grpc_python_out={folder}", PROTOCOL.name]) == 0
    spec = importlib.util.spec_from_file_location("externalscaler_pb2_grpc", folder / "externalscaler_pb2_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["externalscaler_pb2"] = externalscaler_pb2  # by this name the stub looks for it
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["externalscaler_pb2"]
    stub: Callable[[Any], Any] = module.ExternalScalerStub
    return stub


@pytest.fixture
def client(stub_class: Callable[[Any], Any]) -> Iterator[Callable[[int], Any]]:
    """Connects such a client to a port of this machine."""
    channels = []

    def connect(port: int) -> Any:  # noqa: ANN401  the stub has no types
        channels.append(grpc.insecure_channel(f"127.0.0.1:{port}"))
        return stub_class(channels[-1])

    yield connect
    for channel in channels:
        channel.close()
