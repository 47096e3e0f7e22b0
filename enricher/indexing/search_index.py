"""A search index: the requests that OpenSearch and Elasticsearch share, and the notes in its mapping.

`search_clients` sends the requests. The notes are the id of the index, and which topics its versions come from. Versions of
one epoch are comparable only within one topic: in a topic that was deleted and created again offsets begin at 0, so old
articles would win against new ones. And the records that the group has committed are in one index only: an index that was
deleted and created again lacks them all. So the index has an id, which is committed with the offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol
from uuid import uuid4

import orjson

from enricher.errors import BrokerError, SearchUnavailable, SettingsError, TransactionTrouble
from enricher.indexing.index_documents import Document, NoDocument, Origin

log = logging.getLogger(__name__)

Product = Literal["opensearch", "elasticsearch"]
Json = Any
"""A parsed JSON text."""

_JSON, _LINES = "application/json", "application/x-ndjson"
_SCROLL = "5m"
_PAGE = 1_000
_ODD = "answers with a JSON object that is not the index's: is index.url right?"
_SEVERAL = (
    "index.name: '{name}' is an alias of several indices ({indices}). A newer version would be written into one of them, "
    "and the older one stay in another: name one index, or take the others out of the alias"
)

_READ_AGAIN_S = 30.0
"""The notes are read again after this time: another indexer may have noted a newer epoch meanwhile."""
_NOTES = "enricher"
"""The field of `_meta` that has our notes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of any status; `body` is None if it is not JSON."""

    status: int
    body: Json


class Transport(Protocol):
    """Sends one request to one of the nodes. For one thread."""

    def request(
        self, method: str, path: str, *, params: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Reply:
        """The reply, whatever its status. Does not repeat a request; raises SearchUnavailable if there is no answer."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """The product and version that a server names."""

    product: Product
    version: str


class SearchIndex:
    """One index, by its name or an alias.

    Every method but `bulk` raises BrokerError if the server will never accept the request, and SearchUnavailable if it
    may be asked again.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def server(self) -> Server:
        """Ask for product and version."""
        answer = self._ask("GET", "/", "asking the search index for its version")
        version = answer.get("version", {}) if isinstance(answer, dict) else {}
        if not isinstance(version, dict) or "number" not in version:
            raise BrokerError("index.url: the server there is neither OpenSearch nor Elasticsearch")
        is_opensearch = version.get("distribution") == "opensearch"
        return Server("opensearch" if is_opensearch else "elasticsearch", str(version["number"]))

    def bulk(self, lines: bytes) -> Reply:
        """Send actions, as lines of JSON. The reply has the statuses of all items, and errors without further details.

        Raises SearchUnavailable if there is no answer; some of the actions may have been done then.
        """
        params = {"filter_path": "errors,items.*.status,items.*.error.type,items.*.error.reason,error.type"}
        return self._transport.request(
            "POST", f"/{self.name}/_bulk", params=params, body=lines, content_type=_LINES
        )  # fmt: skip

    def put_template(self, name: str, template: Mapping[str, Json]) -> None:
        """Install a composable index template, or replace it."""
        self._ask("PUT", f"/_index_template/{name}", f"installing the index template '{name}'", template)

    def create(self, body: Mapping[str, Json] | None = None) -> bool:
        """Create the index; False if it exists already."""
        reply = self._reply("PUT", f"/{self.name}", body or {})
        if reply.status == 400 and _error_type(reply) in {
            "resource_already_exists_exception",
            "invalid_index_name_exception",
        }:
            return False  # the second error means that the name is an alias
        _require_success(reply, f"creating the index '{self.name}'")
        return True

    def meta(self) -> dict[str, Json] | None:
        """Read `_meta` of the mapping. None if there is no index; raises SettingsError if the name leads to several."""
        reply = self._reply("GET", f"/{self.name}/_mapping")
        if reply.status == 404:
            return None
        _require_success(reply, f"reading the mapping of '{self.name}'")
        try:
            metas = [index.get("mappings", {}).get("_meta") or {} for index in reply.body.values()]
        except AttributeError:
            raise SearchUnavailable(_ODD) from None
        if len(metas) > 1:
            raise SettingsError(_SEVERAL.format(name=self.name, indices=", ".join(sorted(reply.body))))
        return metas[0] if metas else None

    def put_meta(self, meta: Mapping[str, Json]) -> None:
        """Replace `_meta` of the mapping."""
        self._ask("PUT", f"/{self.name}/_mapping", f"writing to the mapping of '{self.name}'", {"_meta": meta})

    def refresh(self) -> None:
        """Make what was written visible to searches."""
        self._ask("POST", f"/{self.name}/_refresh", f"refreshing '{self.name}'")

    def versions(self) -> Iterator[tuple[str, int]]:
        """Id and version of every document at the last refresh, in any order."""
        doing = f"reading the versions in '{self.name}'"
        query = {"size": _PAGE, "version": True, "_source": False, "sort": ["_doc"]}
        answer = self._ask("POST", f"/{self.name}/_search", doing, query, scroll=_SCROLL)
        scroll_id = answer.get("_scroll_id")
        try:
            while hits := _whole_page(answer):
                for hit in hits:
                    yield hit["_id"], hit["_version"]
                answer = self._ask("POST", "/_search/scroll", doing, {"scroll": _SCROLL, "scroll_id": scroll_id})
                scroll_id = answer.get("_scroll_id", scroll_id)
        finally:
            self._reply("DELETE", "/_search/scroll", {"scroll_id": [scroll_id]})

    def _ask(self, method: str, path: str, doing: str, body: Mapping[str, Json] | None = None, **params: str) -> Json:
        reply = self._reply(method, path, body, **params)
        _require_success(reply, doing)
        return reply.body

    def _reply(self, method: str, path: str, body: Mapping[str, Json] | None = None, **params: str) -> Reply:
        text = None if body is None else orjson.dumps(body)
        return self._transport.request(method, path, params=params, body=text, content_type=_JSON)


def _whole_page(answer: Json) -> list[Json]:
    """The hits of a page. Raises SearchUnavailable if some shards did not answer, although the status is 200."""
    try:
        hits, is_whole = answer["hits"]["hits"], not answer["timed_out"] and not answer["_shards"]["failed"]
    except (KeyError, TypeError):
        raise SearchUnavailable(_ODD) from None
    if not is_whole:
        raise SearchUnavailable("some shards did not answer: is the index green, or at least yellow?")
    return list(hits)


def raise_failure(reply: Reply, doing: str) -> NoReturn:
    """Raise the error that a reply without success means. It names only the type: the text may repeat documents."""
    status, kind = reply.status, _error_type(reply)
    text = f"{doing}: HTTP {status}" + (f", {kind}" if kind else "")
    if status in {401, 403}:
        message = (
            f"{text}. Needed: valid credentials (index.username or index.api_key; with index.aws_region an identity that "
            "the domain's access policy allows, and a clock that is right) and the right to do this"
        )
        raise BrokerError(message)
    if status == 404:
        message = f"{text}. Is index.name right, and is the index there ('enricher index template --install')?"
        raise BrokerError(message)
    if status in {408, 429} or status >= 500:
        raise SearchUnavailable(text)
    raise BrokerError(text)


def _require_success(reply: Reply, doing: str) -> None:
    if not 200 <= reply.status < 300:
        raise_failure(reply, doing)


def _error_type(reply: Reply) -> str:
    error = reply.body.get("error") if isinstance(reply.body, dict) else None
    return str(error.get("type", ""))[:100] if isinstance(error, dict) else ""


class Origins:
    """The id of an index, and the origins of the epochs in it. For one thread.

    `epoch`: the setting `kafka.epoch`, which is raised when the input topic is created again.
    """

    def __init__(self, index: SearchIndex, epoch: int) -> None:
        self._index = index
        self._epoch = epoch
        self._known: dict[int, tuple[str, str | None]] = {}
        """The topic and its id by epoch."""
        self._read_s = 0.0
        self._meta: Mapping[str, Any] = {}
        """The whole `_meta` of the mapping, as it was last read."""
        self._id: str | None = None

    def identify(self) -> str:
        """Create the index if it is missing, and give it an id if it has none. Raises what the index raises."""
        self._id, self._known = None, {}
        if self._index.meta() is None and self._index.create():  # creating may need a right that writing does not
            log.warning(
                "the index '%s' is new: it has the mapping of the template that fits its name, if any", self._index.name
            )
        self._read()
        if self._id is None:
            self._id = uuid4().hex[:16]
            self._write()
            self._read()  # another indexer may have given it one at the same time
        return self._id

    def admit(self, documents: Iterable[Document], *, confirm: bool = False) -> None:
        """Note the origins of new epochs. Raises SettingsError if the newest epoch has another one.

        Raises TransactionTrouble if this is no longer the index that `identify` found, which is noticed within 30 s, or with
        `confirm` at once. Raises what the index raises.
        """
        found = {each.origin for each in documents}
        if (
            confirm
            or time.monotonic() - self._read_s > _READ_AGAIN_S
            or any(each.epoch not in self._known for each in found)
        ):
            self._read()
        new = {each.epoch: (each.topic, each.topic_id) for each in sorted(found, key=lambda each: each.epoch)}
        if new.keys() - self._known.keys():
            self._known = new | self._known
            self._write()
        newest = max(self._epoch, *self._known, 0)
        for each in found:
            if each.epoch == newest and not self._is_of(each):
                raise SettingsError(self._complaint(each))

    def check(self, document: Document) -> None:
        """Raise NoDocument if the version is of an epoch that belongs to another topic: then versions cannot be compared."""
        if not self._is_of(document.origin):
            raise NoDocument(
                f"its version is of epoch {document.origin.epoch}, which belongs to another topic: enrich it again, with a "
                "higher kafka.epoch"
            )

    def _is_of(self, origin: Origin) -> bool:
        topic, topic_id = self._known.get(origin.epoch, (origin.topic, origin.topic_id))
        return topic == origin.topic and (topic_id == origin.topic_id or None in {topic_id, origin.topic_id})

    def _read(self) -> None:
        self._meta = self._index.meta() or {}
        noted = self._meta.get(_NOTES)
        noted = noted if isinstance(noted, dict) else {}
        self._read_s = time.monotonic()
        if self._id is not None and noted.get("index_id") != self._id:
            raise TransactionTrouble(f"the index '{self._index.name}' was made again, or another one has its name now")
        self._id = noted.get("index_id")
        each: Any
        for each in (noted, *noted.get("before", ())):
            if "epoch" in each:
                self._known[int(each["epoch"])] = str(each["input_topic"]), each.get("input_topic_id")

    def _write(self) -> None:
        noted = [
            {"input_topic": topic, "input_topic_id": topic_id, "epoch": epoch}
            for epoch, (topic, topic_id) in sorted(self._known.items(), reverse=True)
        ]
        newest: dict[str, object] = {**noted[0], "before": noted[1:]} if noted else {}
        self._index.put_meta({**self._meta, _NOTES: {"index_id": self._id, **newest}})
        for epoch, (topic, topic_id) in [max(self._known.items())] if noted else []:
            log.info("the index has versions of epoch %d from '%s', id %s", epoch, topic, topic_id)

    def _complaint(self, origin: Origin) -> str:
        topic, topic_id = self._known[origin.epoch]
        newer = origin.epoch + 1
        return (
            f"records come from '{origin.topic}' with the topic id {origin.topic_id}, but the index has versions of epoch "
            f"{origin.epoch} from '{topic}' with the topic id {topic_id}: the input topic was made again, and its versions "
            f"begin below those in the index. Set ENRICHER_KAFKA__EPOCH={newer} for workers and indexers, and "
            f"enrich again what was made meanwhile (enricher replay)"
        )
