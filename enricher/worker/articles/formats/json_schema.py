"""JSON documents that name a JSON Schema.

They are not validated, and the schema's text is not even parsed: the serializer has validated them before publishing, a
schema never changes how bytes are read, and a validator would run the regular expressions of strangers, perhaps for ever.
The fields of an article are checked afterwards, as for any JSON.
"""

from __future__ import annotations

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.json_articles import BYTE_ORDER_MARK, NOT_AN_OBJECT
from enricher.worker.articles.schemas import Decoder, Document, Schema


def compile_json(schema: Schema, *, glue: bool = False) -> Decoder:
    """The decoder of JSON documents, the same for every schema."""
    del schema, glue
    return _document


def _document(payload: bytes) -> Document:
    """At most 1024 levels, which is the parser's limit; trailing bytes are refused."""
    try:
        document = orjson.loads(payload.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        # The error contains the document, so it is not chained.
        reason = f"value names a JSON schema but is not valid JSON: {error.msg} (character {error.pos})"
    else:
        if type(document) is dict:
            return document
        reason = NOT_AN_OBJECT
    raise InvalidArticle(reason)
