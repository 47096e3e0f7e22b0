"""How many examples of a property each kind of run takes."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(plain: int, **more: Any) -> settings:  # noqa: ANN401  any other setting
    """So many in a plain run; in another profile, such as that of `--quick`, the share of its own usual number."""
    usual = settings.get_profile("timeless").max_examples
    return settings(max_examples=max(1, plain * settings().max_examples // usual), **more)
