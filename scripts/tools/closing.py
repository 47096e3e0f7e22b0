"""Context managers that close themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Is closed at the end of a `with` block, however that ends."""

    @abstractmethod
    def close(self) -> None:
        """End what was begun at construction."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
