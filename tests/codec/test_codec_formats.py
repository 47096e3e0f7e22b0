"""What all formats share: the choice of a decoder, and the extra that brings the libraries."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from enricher.codec import formats
from enricher.codec.schemas import Schema
from enricher.errors import InvalidArticle, SettingsError


def test_an_unknown_type_of_schema_is_refused() -> None:
    """A registry may have others than ours."""
    unknown: Any = "XML"
    with pytest.raises(InvalidArticle, match="only AVRO, PROTOBUF and JSON"):
        formats.compile_schema(Schema(unknown, "<x/>"))


def test_the_libraries_of_the_extra_are_there() -> None:
    """Guards the test below."""
    formats.require_formats()


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a package that is missing as a whole, too."""
    monkeypatch.setattr(formats, "_MODULES", ("json", "no_such_library", "no_such.library"))
    with pytest.raises(SettingsError, match=r"no_such_library, no_such\.library: .*pip install '\.\[registry\]'"):
        formats.require_formats()


def test_no_library_is_imported_before_a_schema_needs_it() -> None:
    """A worker that reads JSON does not wait for them, and need not have them."""
    program = (
        "import sys; from enricher.codec import formats; from enricher.codec.schemas import Schema;"
        "formats.require_formats(); formats.compile_schema(Schema('JSON', '{}'));"
        "print(sorted({'fastavro', 'google.protobuf.message', 'grpc_tools'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert "[]" == done.stdout.strip()
