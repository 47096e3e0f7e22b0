"""The name and version under which this package is installed. On PyPI, the name `enricher` belongs to another project."""

from importlib.metadata import version

DISTRIBUTION = "kafka-enricher"


def installed_version() -> str:
    """The version in the metadata. Raises PackageNotFoundError if the package was imported without being installed."""
    return version(DISTRIBUTION)


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, for error messages."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
