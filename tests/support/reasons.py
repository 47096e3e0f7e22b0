"""A fixture for folders whose tests refuse articles: each refusal has a reason by which letters are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from enricher.errors import InvalidArticle
from enricher.worker.records import reason_of
from enricher.worker.records.reasons import OTHER


@pytest.fixture(autouse=True)
def every_refusal_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new rule needs a reason in `enricher/worker/records/reasons.py`, and a row on its page."""
    unexplained = set[str]()
    as_shipped = InvalidArticle.__init__

    def noted(self: InvalidArticle, message: str, **options: Any) -> None:  # noqa: ANN401  as the error takes
        as_shipped(self, message, **options)
        if reason_of(self.stage, self.foreign_type or "InvalidArticle", message) == OTHER:
            unexplained.add(message)
        else:
            unexplained.difference_update([each for each in unexplained if each in message])  # what it was made of

    monkeypatch.setattr(InvalidArticle, "__init__", noted)
    yield
    assert set() == unexplained
