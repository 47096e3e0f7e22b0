"""The data that moves through the worker. Plain data: no Kafka, no ONNX Runtime, no clock."""

from enricher.records.articles import *  # noqa: F403  every public name that is defined there, and no list of them here
from enricher.records.flight import *  # noqa: F403  the same
