"""Input records: which article in which form, and what must come out of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from support.mixed.forms import Document, Headers, Written
from support.mixed.layouts import Layout, Text, Texts
from support.operating import producer_of

_FLUSH_S = 60.0


class Place(NamedTuple):
    """Where an input is."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Input:
    """One input record. `text_number`: inputs with the same one have the same text in different forms."""

    layout: Layout
    form: str
    text_number: int
    text: Text
    key: bytes
    value: bytes
    headers: Headers

    @property
    def wanted(self) -> dict[str, Any]:
        """What the record must contain, entities and what describes the model left out."""
        return {"id": self.key.decode(), **self.layout.repeated(self.text)}

    def with_value(self, value: bytes) -> Input:
        """The same with another value, such as a damaged one."""
        return replace(self, value=value)

    def field(self, name: str) -> str:
        """The text that offsets count in."""
        return self.text.title if name == "title" else self.layout.body(self.text)


class Inputs:
    """Makes inputs of one layout in turn in each form."""

    def __init__(self, layout: Layout, forms: Mapping[str, Callable[[Document, str], Written]]) -> None:
        self._layout = layout
        self._forms = dict(forms)
        self._names = list(forms)
        """Those that come in turn."""
        self._texts = Texts()
        self._made = 0

    def next(self, count: int) -> Iterator[Input]:
        """The next `count` inputs."""
        for _ in range(count):
            number, form = divmod(self._made, len(self._names))
            self._made += 1
            yield self.one(number, self._names[form])

    def one(self, text_number: int, form: str) -> Input:
        """The article with this text in this form."""
        text = self._texts.text(text_number)
        key = f"{self._layout.name}-{text_number}-{form}"
        written = self._forms[form](self._layout.document(text, key), f"event-{key}")
        return Input(self._layout, form, text_number, text, key.encode(), written.value, written.headers)

    def prepare(self, name: str) -> None:
        """Make one input of this form and drop it, so that its serializer has registered its schema."""
        self.one(0, name)

    def add(self, name: str, form: Callable[[Document, str], Written]) -> None:
        """A further form, for `one`."""
        self._forms[name] = form


class Publisher:
    """Writes inputs to a topic, and keeps where each one is."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = producer_of(bootstrap_servers)
        self.places: dict[Place, Input] = {}

    def send(self, inputs: Iterable[Input]) -> None:
        """Write and wait until the brokers have acknowledged; raises RuntimeError if they do not."""
        failures: list[str] = []
        for each in inputs:

            def delivered(error: KafkaError | None, message: Message, each: Input = each) -> None:
                if error is not None:
                    failures.append(str(error))
                else:
                    self.places[Place(message.partition() or 0, message.offset() or 0)] = each

            self._producer.produce(self._topic, each.value, each.key, headers=list(each.headers), on_delivery=delivered)
            self._producer.poll(0)
        left = self._producer.flush(_FLUSH_S)
        if left or failures:
            raise RuntimeError(f"{left} inputs were not acknowledged, {len(failures)} failed: {failures[:1]}")
