"""What all groups of settings have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Frozen, and without unknown names."""

    # What pydantic says of a mistake holds no values: among them are passwords.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
