"""What hostile records are refused for has a reason that users can look up."""

from __future__ import annotations

from support.reasons import every_refusal_has_a_reason

__all__ = ["every_refusal_has_a_reason"]
