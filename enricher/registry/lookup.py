"""An event loop that looks up host names without delaying the end of the process."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any


class LookupLoop(asyncio.SelectorEventLoop):
    """Looks hosts up in daemon threads. Asyncio's own are waited for at the end, and a resolver may hang for long."""

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:  # noqa: ANN401  as in asyncio
        """Return what `socket.getaddrinfo` returns."""
        found: asyncio.Future[Any] = self.create_future()

        def tell(result: object, error: OSError | None) -> None:
            if found.cancelled():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, error = None, None
            try:
                result = socket.getaddrinfo(host, port, **hints)
            except OSError as failure:
                error = failure
            with suppress(RuntimeError):  # the request was given up, and its loop is closed
                self.call_soon_threadsafe(tell, result, error)

        threading.Thread(target=look_up, name="schema-lookup", daemon=True).start()
        return await found
