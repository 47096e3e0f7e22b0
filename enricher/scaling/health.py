"""gRPC's own health check (`grpc.health.v1.Health/Check`), as Kubernetes probes ask it.

Its two messages are put together here: they have one field each. `Watch` is not answered, which the protocol allows.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SERVING, _NOT_SERVING = 1, 2
_STRING, _INT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
_PACKAGE = "enricher.health"  # on the wire messages have no names; a pool has room for one of each


def _message(name: str, field: str, kind: int) -> Any:  # noqa: ANN401  a class that protobuf makes
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.{name}", package=_PACKAGE, syntax="proto3")
    message = file.message_type.add(name=name)
    message.field.add(name=field, number=1, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Request, Answer = _message("Request", "service", _STRING), _message("Answer", "status", _INT)


class Health:
    """Says whether the server takes calls. Whether the brokers answer is told by each call for itself.

    `services`: the names that may be asked for; the empty one is the server as a whole.
    """

    def __init__(self, *services: str) -> None:
        self._services = {"", *services}
        self.serving = True

    def handler(self) -> Any:  # noqa: ANN401  gRPC has no types
        """What a gRPC server is given."""
        check = grpc.unary_unary_rpc_method_handler(
            self._check, request_deserializer=Request.FromString, response_serializer=Answer.SerializeToString
        )
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})

    def _check(self, request: Any, context: Any) -> Any:  # noqa: ANN401  gRPC has no types
        if request.service not in self._services:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service '{request.service}' here")
        return Answer(status=_SERVING if self.serving else _NOT_SERVING)
