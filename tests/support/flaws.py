"""Flaws: defences of the worker that can be switched off, for negative controls that show why each one exists.

    python -m support.flaws [FLAW ...] [ARGUMENTS ...]    # a worker of the fault matrix (`tools.chaos.worker`) without them

The product has no such option.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, ClassVar
from unittest.mock import patch

from confluent_kafka import KafkaException, Producer

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.wiring import kafka_clients, loaded_tasks, workers
from tools.chaos import worker as chaos_worker

SAME_PRODUCER = "same-producer"
NO_WATCHDOG = "no-watchdog"
CLIENT_DEFAULTS = "client-defaults"
PAUSE_BY_BACKOFF = "pause-by-backoff"
IN_BATCHES = "in-batches"
"""No defence: what arrives together goes into one batch and one transaction, however low the load is."""
PATIENT_BROKER = "patient-broker"
"""No defence: the broker gives no transaction up because the machine is slow, which ends a worker with exit code 5."""


class _KeptProducer(Producer):
    """A producer that ignores purge and close."""

    def purge(self, *_arguments: Any, **_named: Any) -> None:  # noqa: ANN401  the client's own signature
        """Do nothing."""

    def close(self, *_arguments: Any) -> bool:  # noqa: ANN401  as above
        """Do nothing."""
        return True


class SameProducerSink(TransactionalSink):
    """Keeps its producer after a slow transaction, and after a failure aborts and reuses it.

    Only a producer that cannot even abort is replaced; by then the damage is done.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  whatever the sink takes
        super().__init__(*arguments, **named | {"producer_class": _KeptProducer})
        self._only: Producer | None = None

    def _renew(self, slow: str) -> None:
        """Keep the producer."""

    def _connect(self) -> Producer:
        if self._only is None or not self._aborted(self._only):
            self._only = super()._connect()
        return self._only

    def _aborted(self, producer: Producer) -> bool:
        try:
            producer.abort_transaction(self._config.transaction_timeout_s)
        except KafkaException as exception:
            if exception.args[0].fatal():
                return False
            raise TransactionTrouble(str(exception)) from exception
        return True


class BlindWatchdog(Watchdog):
    """Ignores calls that do not return."""

    def __init__(self, *, timer: ProcessTimer) -> None:
        del timer  # it would end the process
        super().__init__(on_stall=lambda _message: None)


class PatientBrokerConfig(KafkaConfig):
    """Its calls have the worker's limits; the broker waits as long as librdkafka asks for by default."""

    def producer(self) -> dict[str, Any]:
        """The worker's configuration with librdkafka's default for the broker."""
        return super().producer() | {"transaction.timeout.ms": 60_000}


class ClientDefaultsConfig(PatientBrokerConfig):
    """Its clients keep connections and metadata for librdkafka's default times."""

    retry_pause_s = 20.0
    """With the worker's own pause, a slow first transaction would bring a new producer, whose cache is empty."""
    _defaults: ClassVar[dict[str, int]] = {
        "connections.max.idle.ms": 0,
        "metadata.max.age.ms": 900_000,
        "topic.metadata.refresh.interval.ms": 300_000,
    }

    def consumer(self) -> dict[str, Any]:
        """The worker's configuration with librdkafka's defaults."""
        return super().consumer() | self._defaults

    def producer(self) -> dict[str, Any]:
        """The worker's configuration with librdkafka's defaults."""
        return super().producer() | self._defaults


class PauseByBackoffConfig(KafkaConfig):
    """Derives the retry pause from the backoff alone, ignoring librdkafka's maximum backoff."""

    @property
    def retry_pause_s(self) -> float:
        """80 % of the backoff."""
        return 0.8 * float(self.producer()["retry.backoff.ms"]) / 1000


_PARTS: dict[str, Sequence[tuple[ModuleType, str, object]]] = {
    SAME_PRODUCER: [(workers, "TransactionalSink", SameProducerSink)],
    PATIENT_BROKER: [(kafka_clients, "KafkaConfig", PatientBrokerConfig)],
    CLIENT_DEFAULTS: [(kafka_clients, "KafkaConfig", ClientDefaultsConfig)],
    PAUSE_BY_BACKOFF: [(kafka_clients, "KafkaConfig", PauseByBackoffConfig)],
    NO_WATCHDOG: [(chaos_worker, "Watchdog", BlindWatchdog)],
    IN_BATCHES: [(workers, "PUBLISH_SHARE", 0.0), (loaded_tasks, "EARLY_OVERHEAD", {"cpu": 0.0, "cuda": 0.0})],
}
"""Where the worker's part is looked up, its name, and what stands instead."""


def main() -> None:
    """Run the worker without the defences among the arguments."""
    with ExitStack() as patches:
        for module, attribute, flawed in (part for name in sys.argv[1:] for part in _PARTS.get(name, ())):
            patches.enter_context(patch.object(module, attribute, flawed))
        sys.argv[1:] = [each for each in sys.argv[1:] if each not in _PARTS]
        chaos_worker.command() if sys.argv[1:] else chaos_worker.main()


if __name__ == "__main__":
    main()
