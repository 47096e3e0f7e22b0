"""Bytes <-> records, as `schemas/` specifies.

`articles` reads inputs, `enriched` writes records, `headers` makes the headers of outputs, `encoder` makes the message of a
finished ticket. No Kafka client, no files, no settings; the wall clock is an argument.
"""

from enricher.codec.articles import *  # noqa: F403  every public name that is defined there, and no list of them here
from enricher.codec.encoder import *  # noqa: F403  the same
from enricher.codec.enriched import *  # noqa: F403  the same
from enricher.codec.headers import *  # noqa: F403  the same
