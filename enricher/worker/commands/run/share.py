"""One of several worker processes: its instance name, its ports, and its share of the cores."""

from __future__ import annotations

from dataclasses import dataclass

from enricher.errors import SettingsError
from enricher.worker.inference.device.processor import available_cores
from enricher.worker.inference.device.resolution import resolve_device
from enricher.worker.settings import Settings
from enricher.worker.settings.worker import USUAL_PORT, USUAL_PROBE_PORT, HealthSettings


@dataclass(frozen=True, slots=True)
class Share:
    """Process `index` of `count`, written as `0/4`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Share:
        """Parse the written form. Raises SettingsError."""
        index, _, count = text.partition("/")
        if index.isdecimal() and count.isdecimal() and int(index) < int(count):
            return cls(int(index), int(count))
        message = f"--process is set by the parent of several processes and takes INDEX/COUNT, not '{text}'"
        raise SettingsError(message)

    def of(self, settings: Settings) -> Settings:
        """The settings of this process: its instance name, its ports, and by default only its share of the cores."""
        kafka, model, worker = settings.kafka, settings.model, settings.worker
        cores, concurrency = available_cores(), model.concurrency
        if concurrency is None and resolve_device(model.device) == "cpu":
            concurrency = max(1, cores // self.count)
        tokenizer_threads = worker.tokenizer_threads or max(1, min(4, cores // (2 * self.count)))
        return settings.model_copy(
            update={
                "kafka": kafka.model_copy(update={"instance": f"{kafka.instance}-{self.index}"}),
                "model": model.model_copy(update={"concurrency": concurrency}),
                "worker": worker.model_copy(update={"tokenizer_threads": tokenizer_threads}),
                "health": self.of_health(settings.health),
            }
        )

    def of_health(self, health: HealthSettings) -> HealthSettings:
        """The settings of health with the ports of this process, which must be free."""
        port, probe_port = health.port or USUAL_PORT, health.probe_port or USUAL_PROBE_PORT
        return health.model_copy(update={"port": port + self.index, "probe_port": probe_port + 1 + self.index})
