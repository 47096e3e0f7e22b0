"""The reasons why an input becomes a dead letter: the messages without their values, so that letters can be counted by them.

A reason is derived from the stage, type and message of a letter, in this place only, by the worker's counts as by
`enricher dead-letters`: also for letters of earlier versions, and whatever strangers wrote into a message. So the reasons
are a closed set, which `deploy/dead-letters.md` explains. A message that no reason fits counts as `OTHER`.
"""

from __future__ import annotations

OTHER = "other"

MODEL_FAILS = "the model fails on one of its windows"
"""The reason of letters whose message is that of ONNX Runtime or its driver."""
BROKER_REFUSES = "the broker refuses its output"
"""The reason of letters whose message is the broker's."""
OWN_CODE_FAILS, OWN_ANSWER = "your own code raises an error", "what your own code returns cannot be used"
"""The reasons of letters whose message is an error of the team's function, or ours about what it returns."""

_OURS = """
value is empty
value is not valid JSON: ...
value is not JSON but an Avro file
value is not UTF-8, as JSON is ...
value is not a JSON object
value has a schema id but is not JSON: ...
value names a JSON schema but is not valid JSON: ...
value has ... bytes, at most ... are allowed
value has more than ... values, the most for its length
value repeats names of its schema in more than ... bytes, the most for its length
the article has more than ... levels at ...
... headers are more than ...; none of them is kept
the client cannot unpack the batch at offset ...
value does not follow its ... schema: ...
schema ... is unknown: ...
schema ... cannot be used: ...
the ... schema cannot be used: ...
the decoder of schema ... failed with ...
the schema id is ..., which no registry gives: ...
...: expected 00 (Confluent's schema id), 01 (Confluent's GUID)...
...; expected at least ... bytes, found ...
a decimal has ...
a date is outside of the years 1 to 9999
a timestamp is outside of the years 1 to 9999
a time of day is outside of 24 hours
a timestamp has nanoseconds beyond a second
a duration has nanoseconds beyond a second, or of another sign
the delete event has neither a key nor an id: ...
id is missing...
id is empty
id is not a string...
id is a number that is not whole, or has more than 64 bits...
id is not UTF-8...
id has ... characters, at most ... are allowed
body is missing...
body is not a string...
body is an array with an item that is not a string...
body is HTML in which the parser takes a text for another one
body has ... characters when it is joined, at most ... are allowed
title and body have ... characters, at most ... are allowed
title and body have no visible character
published_at is outside of the years 1 to 9999...
... is not a string...
... has ... characters, at most ... are allowed
... has a lone surrogate, which is not text
... has a name that is not text
... has bytes that are not UTF-8
... is a number beyond a double
... has the type ..., which JSON does not have
what articles.metadata names has ... bytes as JSON, at most ... are allowed
... of articles.metadata cannot be written as JSON, or is nested too deeply
the document has ... bytes as JSON, at most ... are allowed
the document cannot be written as JSON, or is nested too deeply
the document has more than ... levels, too many for output.article=whole
the document deletes an article (articles.deleted): it has no record
articles.transform returned None: the article has no record
a text is not well-formed Unicode, or the tokenizer refuses it
the model's scores for this window are NaN or infinite...
... processes ended while this record was the only one in flight: ...
the enriched record takes ... bytes..., ... is ...
its entities have more than ... ids of the catalogue
the vector of task ... is not finite
the vector of task ... is beyond float16: vector=list
the number of task ... is not finite
"""
"""The reasons, one in each line, where `...` stands for any text. The first that fits a message counts."""

REASONS = (*_OURS.strip().splitlines(), OWN_CODE_FAILS, OWN_ANSWER, MODEL_FAILS, BROKER_REFUSES, OTHER)

_PARTS = [(reason, begin, others) for reason in REASONS for begin, *others in [reason.split("...")]]
_MAX_CHARS = 1024
"""The longest beginning of a message that is compared; headers hold as many bytes of it (`articles.encoder`)."""


def reason_of(stage: str, error_type: str, message: str) -> str:
    """Why an input became a dead letter: one of `REASONS`."""
    if stage == "transform" and error_type != "Skipped":
        return OWN_ANSWER if error_type == "InvalidArticle" else OWN_CODE_FAILS
    message = message[:_MAX_CHARS]
    for reason, begin, others in _PARTS:
        if message.startswith(begin) and _fits(message, len(begin), others):
            return reason
    if stage == "inference":
        return MODEL_FAILS
    return BROKER_REFUSES if error_type == "RefusedOutput" else OTHER


def _fits(message: str, at: int, parts: list[str]) -> bool:
    """Whether the message has these parts in this order behind `at`, with any text before each, and ends with the last."""
    if not parts:
        return at == len(message)
    *middle, end = parts
    for part in middle:
        found = message.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return message.endswith(end) and at + len(end) <= len(message)
