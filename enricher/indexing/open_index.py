"""Settings -> an open search index of either product."""

from __future__ import annotations

import logging

from enricher.errors import RecoveryExhausted, SearchUnavailable
from enricher.indexing.search_index import SearchIndex, Server
from enricher.indexing.transports import Nodes, open_transport
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.settings import IndexSettings

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5
_REPEAT_S = 60.0


def open_index(settings: IndexSettings) -> SearchIndex:
    """The index of the settings, once a node has answered. The caller closes it.

    Asks for at most `index.give_up_s`, then raises RecoveryExhausted. Raises SettingsError, and BrokerError if the server
    refuses us.
    """
    nodes = Nodes.of(settings)
    first = "opensearch" if settings.product == "auto" else settings.product
    index = SearchIndex(open_transport(first, nodes), settings.name)
    try:
        server = _wait_for_server(index, settings.give_up_s)
        if settings.product == "auto" and server.product != first:
            index.close()
            index = SearchIndex(open_transport(server.product, nodes), settings.name)
            server = _wait_for_server(index, settings.give_up_s)
    except BaseException:
        index.close()
        raise
    log.info("the search index is '%s' on %s %s", settings.name, server.product, server.version)
    return index


def _wait_for_server(index: SearchIndex, timeout_s: float) -> Server:
    found: list[Server] = []
    repeats, reason = Repeats(period_s=_REPEAT_S), ""

    def ask() -> bool:
        nonlocal reason
        try:
            found.append(index.server())
        except SearchUnavailable as error:
            reason = str(error)
            if repeats.is_new("away"):
                log.warning("waiting for the search index: %s", reason)
        return bool(found)

    if not until(ask, Deadline(timeout_s), pause_s=_ASK_AGAIN_S):
        message = f"the search index was not reachable for {timeout_s:g} s: {reason}"
        raise RecoveryExhausted(message)
    return found[0]
