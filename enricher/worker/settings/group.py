"""The base class of all groups of settings, and types that several groups use."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from enricher.errors import SettingsError


class Group(BaseModel):
    """Frozen; unknown names are refused."""

    # pydantic's messages must not contain values: some are passwords.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class FromFile(Group):
    """A value in a file, as Kubernetes mounts secrets."""

    file: Path

    def read(self, name: str, setting: str) -> str:
        """The file's text without trailing line ends. Raises SettingsError, which names setting and property."""
        try:
            return self.file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            message = f"{setting}: '{name}' refers to {self.file}, which cannot be read: {reason}"
            raise SettingsError(message) from None  # a UnicodeDecodeError contains the secret


Properties = dict[str, str | int | float | bool | FromFile]
"""Properties of a client, by name."""


def read_properties(properties: Properties, setting: str) -> dict[str, str | int | float | bool]:
    """The properties, with values from files read now. Raises SettingsError, which names the setting."""
    return {
        name: value.read(name, setting) if isinstance(value, FromFile) else value for name, value in properties.items()
    }


def require_http(urls: str) -> str:
    """Return the URLs, separated by commas. Raises ValueError, which does not quote them: they may contain a password."""
    if urls and not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
        raise ValueError("every URL must begin with http:// or https://")
    return urls
