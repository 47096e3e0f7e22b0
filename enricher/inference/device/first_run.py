"""A session that is not thread-safe until it has run once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from enricher.inference.device.session import Feeds, Session


class FirstRunAlone:
    """Runs one at a time until a run has succeeded, and concurrently from then on. Implements `Session`.

    On GPUs before Ampere, ONNX Runtime's packed attention creates its kernel during the first run, without a lock
    (TrtFusedAttention::GetFusedRunner, packed_attention.cc): of two concurrent first runs, one frees what the other uses,
    and the process dies. Heads of size 32 or 64 create it in any run, other sizes in the first with a window of 385
    tokens or more.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first = threading.Lock()
        self._ran = False

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """Like `Session.run`; also blocks while another thread makes the first run."""
        if self._ran:
            return self._session.run(outputs, feeds)
        with self._first:
            answers = self._session.run(outputs, feeds)
            self._ran = True
        return answers
