"""A streaming enrichment worker: reads articles from Kafka, writes entities to Kafka, exactly once, model in process.

`Enricher` is the same worker for a Python program. It is imported when it is first named, because commands import this
package too, and `enricher --help` needs none of it.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enricher.interface import Enricher

__all__ = ["Enricher"]

# ONNX Runtime reads this when it is loaded; otherwise it sends usage data to its maker and stores a device id on disk.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> Any:  # noqa: ANN401  a module's attribute
    """Import a public name when it is first used."""
    if name in __all__:
        return getattr(import_module("enricher.interface"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
