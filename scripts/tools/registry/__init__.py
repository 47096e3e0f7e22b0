"""A real schema registry with Confluent's API for development and the tests: Apicurio, without containers.

    from tools.registry import Registry

    with Registry() as registry:
        print(registry.url)

This package knows the server and nothing of `enricher`; `enricher` never imports it.

Apicurio Registry 3.3.3 answers `/apis/ccompat/v7` and `v8` as Confluent's registry does, except here:

- It has no GUIDs. Header ids (`__value_schema_id`) need the proxy of the tests (`tests/support/registry_proxy.py`), which
  makes GUIDs up from ids: that a registry assigns them is not tested.
- `POST /compatibility/...` gives no reasons, even with `verbose=true`; the default level is NONE.
- A Protobuf schema comes back as it was registered (Confluent's serializer for Python registers a base64
  `FileDescriptorProto`), and with `format=serialized` some give 500. An Avro schema comes back without its white space,
  unless it has references.
- A JSON Schema without `$schema` or another sign of it is refused with 422.
- `error_code` 0 in 500s; 409 instead of a five-digit code; a path that does not exist is a 404 with an empty body. So only
  codes that begin with 404 mean "unknown".
"""

from tools.registry.server import LOCK_PATH, Registry, RegistryError

__all__ = ["LOCK_PATH", "Registry", "RegistryError"]
