"""A real schema registry with Confluent's API for development and the tests: Apicurio, without containers.

    from tools.registry import Fault, FaultProxy, Registry

    with Registry() as registry, FaultProxy(registry.url) as proxy, proxy.fault(Fault.DOWN):
        ...

This package knows the server and nothing of `enricher`; `enricher` never imports it.
"""

from tools.registry.proxy import Fault, FaultProxy
from tools.registry.server import LOCK_PATH, Registry, RegistryError

__all__ = ["LOCK_PATH", "Fault", "FaultProxy", "Registry", "RegistryError"]
