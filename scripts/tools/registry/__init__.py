"""A real schema registry with Confluent's API for development and the tests: Apicurio, without containers.

    from tools.registry import Registry

    with Registry() as registry:
        print(registry.url)

This package knows the server and nothing of `enricher`; `enricher` never imports it.
"""

from tools.registry.server import LOCK_PATH, Registry, RegistryError

__all__ = ["LOCK_PATH", "Registry", "RegistryError"]
