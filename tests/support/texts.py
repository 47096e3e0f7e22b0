"""Texts for properties."""

from __future__ import annotations

from hypothesis import strategies as st


def any_text(min_size: int = 0, max_size: int | None = None) -> st.SearchStrategy[str]:
    """What UTF-8 can represent. By its own default, hypothesis computes the same alphabet for three seconds."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=min_size, max_size=max_size)
