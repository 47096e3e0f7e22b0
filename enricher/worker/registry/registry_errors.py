"""The errors of requests to a schema registry."""

from __future__ import annotations

from enricher.errors import EnricherError


class RegistryError(EnricherError):
    """The base of the errors of a registry. No message contains a secret."""


class RegistryUnavailable(RegistryError):
    """No usable answer: no connection, a timeout, 401, 5xx, a page of a proxy. Says nothing about the schema: try again.

    `status`: of HTTP; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnknownToRegistry(RegistryError):
    """The registry answered that there is no such schema, subject or version (404 with its own error code 404xx)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class UnusableSchema(RegistryError):
    """The schema is there, but cannot be used: too large, of an unknown type, or its references do not resolve."""


class RefusedByRegistry(RegistryError):
    """The registry understood a change and refuses it: an incompatible or invalid schema (409, 422)."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
