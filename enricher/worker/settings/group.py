"""The base class of all groups of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Frozen; unknown names are refused."""

    # pydantic's messages must not contain values: some are passwords.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
