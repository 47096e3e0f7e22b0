"""A session that is not safe for threads until it has run once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from enricher.inference.graph.variants import Feeds
    from enricher.inference.run.device import Session


class FirstRunAlone:
    """Runs one at a time until one has succeeded, and from then on all side by side. Implements `device.Session`.

    On GPUs before Ampere, ONNX Runtime's packed attention makes its kernel in the first run, and without a lock
    (TrtFusedAttention::GetFusedRunner, packed_attention.cc): of two first runs at once one frees what the other uses, and
    the process dies. Heads of 32 or 64 make it in any run, others in the first with a window of 385 tokens or more.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first = threading.Lock()
        self._ran = False

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """As the session's. Waits while another thread's first run goes on."""
        if self._ran:
            return self._session.run(outputs, feeds)
        with self._first:
            answers = self._session.run(outputs, feeds)
            self._ran = True
        return answers
