"""The context that every leg gets: settings, model, broker, articles, and a function that reports progress."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from confluent_kafka import Producer

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import default_concurrency, resolve_device
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.loaded_tasks import Model, batch_rules, window_lengths
from tools.bench.load import write_catalogue
from tools.bench.runs import LoadMeter, Run, interleave
from tools.kafka import Cluster
from tools.topics import Topics, publish
from tools.worker_parts import change, load_model

PARTITIONS = 8


@dataclass
class Bench:
    """Shared by all legs. The costly parts (model, broker) are created when a leg first asks for them."""

    repetitions: int
    quick: bool
    """Tiny runs, to see that everything works; the figures mean nothing."""
    say: Callable[[str], None]
    closing: ExitStack = field(default_factory=ExitStack)
    catalogue_names: int = 0
    """The names of a catalogue that a leg may compare the worker with."""
    _models: dict[str, Model] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """The settings as the worker reads them, environment included."""
        return load_settings()

    @cached_property
    def model(self) -> Model:
        """The configured model in the graph variant that the settings choose, warmed up."""
        self.say("loading the model")
        return load_model(self.settings)

    def model_in(self, precision: Precision) -> Model:
        """The same model in this precision; the configured one if that has it already. Raises ModelError."""
        if precision not in self._models:
            same = self.model.card.precision == precision
            other = change(self.settings, model={"precision": precision})
            self._models[precision] = self.model if same else load_model(other)
        return self._models[precision]

    def model_of(self, checkpoint: Checkpoint, variant: Variant) -> Model:
        """This checkpoint in this variant, warmed up, even if no report of the quality gate allows it to serve."""
        chosen, device = self.settings.model, resolve_device(self.settings.model.device)
        prepared = prepare_variant(checkpoint, variant, device, cache_dir=chosen.cache_dir)
        tokenizer = ArticleTokenizer(checkpoint)
        advice = advice_for(checkpoint.folder, tokenizer.max_window_tokens)
        concurrency = chosen.concurrency or default_concurrency(device)
        engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
        model = Model(prepared, tokenizer, engine, advice, concurrency)
        batch_tokens = batch_rules(self.settings, model).max_batch_tokens
        engine.warm_up(window_lengths(self.settings, model), batch_tokens=batch_tokens)
        return model

    @cached_property
    def cluster(self) -> Cluster:
        """A broker for this run, warmed up."""
        self.say("starting Kafka")
        cluster = self.closing.enter_context(Cluster(nodes=1))
        cluster.warm_up()
        return cluster

    @cached_property
    def catalogue(self) -> Path:
        """A catalogue of so many names."""
        self.say(f"writing a catalogue of {self.catalogue_names:,} names")
        path = Path(self.closing.enter_context(TemporaryDirectory())) / "names.jsonl"
        write_catalogue(path, self.catalogue_names)
        return path

    def meter(self) -> LoadMeter:
        """Start measuring load; the broker's share is measured separately."""
        return LoadMeter(self.broker_pids)

    def broker_pids(self) -> list[int]:
        """Pids of the broker; empty if no leg has asked for a broker, since asking for pids must not start one."""
        cluster: Cluster | None = vars(self).get("cluster")
        return [node.pid for node in cluster.nodes if node.running] if cluster else []

    def settings_for(
        self, topics: Topics, settings: Settings | None = None, /, **changes: Mapping[str, object]
    ) -> Settings:
        """The settings with these topics. `changes`: other values by group, such as `worker={"publish_interval_ms": 20}`.

        `settings`: to begin with, instead of the worker's.
        """
        kafka = topics.kafka_settings(f"bench-{uuid.uuid4().hex[:6]}")
        return change(settings or self.settings, **{"kafka": kafka, **changes})

    def interleave(
        self, contenders: Mapping[str, Callable[[], Run]], about: str = "", *, most: int | None = None
    ) -> dict[str, list[Run]]:
        """Let contenders take turns, as `runs.interleave` does.

        `about`: what each line of progress begins with. `most`: repetitions, however many were asked for.
        """
        repetitions = min(self.repetitions, most or self.repetitions)
        return interleave(contenders, repetitions, lambda text: self.say(f"{about}: {text}" if about else text))

    @contextmanager
    def topics(self, values: Sequence[bytes] = ()) -> Iterator[Topics]:
        """Three topics for one run; `values` go to the input, as `publish` writes them. Deleted afterwards."""
        topics = Topics.fresh(self.cluster.bootstrap_servers, "bench")
        topics.make(PARTITIONS)
        try:
            self.publish(topics, values)
            yield topics
        finally:
            topics.delete()

    def publish(self, topics: Topics, values: Sequence[bytes], *, evenly: bool = False) -> None:
        """Write articles to the input topic, keyed by id, and wait until the broker has acknowledged them.

        `evenly`: to the partitions in turn, since hashed keys give some a few per cent more than others.
        """
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 20})
        for number, value in enumerate(values):
            place = {"partition": number % PARTITIONS} if evenly else {}
            publish(producer, topics.input, value, orjson.loads(value)["id"], **place)
        assert producer.flush(60) == 0, "the broker has not acknowledged all articles"
