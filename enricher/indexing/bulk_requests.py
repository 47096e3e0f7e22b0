"""Turns documents into the lines of a bulk request, and says what the answer to each means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from enricher.indexing.index_documents import Document
from enricher.worker.records import RawRecord

Verdict = Literal["written", "deleted", "older", "busy", "failed", "refused"]
"""The first three are done, `busy` and `failed` are sent again, and `refused` would be refused again."""

DONE: frozenset[Verdict] = frozenset({"written", "deleted", "older"})
_NOT_THE_DOCUMENTS = frozenset({401, 403, 404, 408})
"""Statuses for a missing right or index, or a block (a disk is too full). The document can be written once an operator has
acted."""
_FIELD = re.compile(r"\bfield \[([A-Za-z_]{1,64})[.\]]")
_MAX_TYPE_CHARS = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that the index will never take. `message` contains none of its text."""

    raw: RawRecord
    error_type: str
    message: str


def bulk_lines(documents: Iterable[Document]) -> bytes:
    """The actions in order, each with its version: the index refuses a version that is older than what it has."""
    lines: list[bytes] = []
    for each in documents:
        meta = {"_id": each.id, "version": each.version, "version_type": "external_gte"}
        lines.append(orjson.dumps({"delete" if each.body is None else "index": meta}))
        if each.body is not None:
            lines.append(each.body)
    lines.append(b"")
    return b"\n".join(lines)


def verdict_on(document: Document, status: int) -> Verdict:
    """The meaning of one action's status."""
    if 200 <= status < 300:
        return "deleted" if document.body is None else "written"
    if status == 409:
        return "older"
    if status == 404 and document.body is None:
        return "deleted"  # the document was missing, and the index keeps the version of the deletion
    if status == 429:
        return "busy"
    return "failed" if status in _NOT_THE_DOCUMENTS or status >= 500 else "refused"


def items_in(answer: Any, expected: int) -> list[Mapping[str, Any]] | None:  # noqa: ANN401  parsed JSON
    """The result of each action, in order; None if this is not the answer to a bulk request of so many actions."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != expected:
        return None
    results = [each for item in items if isinstance(item, dict) for each in item.values()]
    is_whole = all(isinstance(each, dict) and isinstance(each.get("status"), int) for each in results)
    return results if is_whole and len(results) == expected else None


def refusal_of(document: Document, item: Mapping[str, Any]) -> Refusal:
    """The reason, without text of the document: the type of the error, and the field of ours that it names."""
    error = item.get("error")
    error = error if isinstance(error, dict) else {}
    kind = re.sub(r"[^\w.-]", "", str(error.get("type", "")))[:_MAX_TYPE_CHARS] or "unknown"
    named = _FIELD.search(str(error.get("reason", ""))[:1000])
    ours = orjson.loads(document.body) if document.body and named else {}
    where = f" in the field '{named[1]}'" if named and named[1] in ours else ""
    return Refusal(document.raw, kind, f"the index answers with status {item['status']}{where}")
