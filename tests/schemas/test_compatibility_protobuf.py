"""The rules for Protobuf: what Confluent's registry refuses, and what our promise adds."""

from __future__ import annotations

import pytest
from support.compatibility import Level, SchemaUnusable, violations

OTHER = "message Other { string x = 1; }"
KIND = "enum Kind { NONE = 0; ONE = 1; }"


def proto(body: str, more: str = "", *, package: str = "p", syntax: str = "proto3") -> str:
    """A file with one message `M`."""
    return f'syntax = "{syntax}"; package {package}; message M {{ {body} }} {more}'


def found(old: str, new: str, level: Level) -> list[str]:
    """The places of the violations."""
    return [each.place for each in violations("PROTOBUF", old, new, level)]


@pytest.mark.parametrize(
    ("old", "new", "registry", "promise"),
    [
        # Old and new; what a registry at BACKWARD refuses; what our promise refuses.
        (proto("string a = 1;"), proto("string a = 1; int32 b = 2;"), [], []),
        (proto("string a = 1;"), proto("string a = 1; Other b = 2;", OTHER), [], []),
        (proto("string a = 1;"), proto("string a = 1; map<string, int32> b = 2;"), [], []),
        (proto("string a = 1;"), proto("int32 a = 1;"), ["/M/a"], ["/M/a"]),
        (proto("int32 a = 1;"), proto("int64 a = 1;"), [], ["/M/a"]),
        (proto("int32 a = 1;"), proto("sint32 a = 1;"), ["/M/a"], ["/M/a"]),
        (proto("string a = 1;"), proto("bytes a = 1;"), [], ["/M/a"]),
        (proto("string a = 1;"), proto("string b = 1;"), [], ["/M/a"]),
        (proto("string a = 1;"), proto("string a = 2;"), [], ["/M/a"]),
        (proto("string a = 1; string b = 2;"), proto("string a = 1;"), [], ["/M/b"]),
        (proto("string a = 1; string b = 2;"), proto('string a = 1; reserved 2; reserved "b";'), [], ["/M/b"]),
        (proto("reserved 2;"), proto("string b = 2;"), [], ["/M/b", "/M/reserved"]),
        (proto("reserved 2 to 9;"), proto("reserved 2 to 8;"), [], ["/M/reserved"]),
        (proto("reserved 2 to 9;"), proto("reserved 1 to 10;"), [], []),
        (proto("int32 a = 1;"), proto("repeated int32 a = 1;"), ["/M/a"], ["/M/a"]),
        (proto("string a = 1;"), proto("repeated string a = 1;"), [], ["/M/a"]),
        (proto("string a = 1;"), proto("optional string a = 1;"), [], ["/M/a"]),
        (proto("Other a = 1;", OTHER), proto("M a = 1;", OTHER), ["/M/a"], ["/M/a"]),
        (proto("Other a = 1;", OTHER), proto("string a = 1;"), ["/M/a", "/Other"], ["/M/a", "/Other"]),
        (proto("map<string, int32> a = 1;"), proto("map<string, string> a = 1;"), ["/M/a"], ["/M/a"]),
        (proto("Kind a = 1;", KIND), proto("int32 a = 1;", KIND), [], ["/M/a"]),
        (proto("Kind a = 1;", KIND), proto("Kind a = 1;", KIND.replace("NONE", "ZERO")), [], ["/Kind/NONE"]),
        (proto("Kind a = 1;", KIND), proto("Kind a = 1;", KIND.replace(" ONE = 1;", "")), [], ["/Kind/ONE"]),
        (proto("Kind a = 1;", KIND), proto("Kind a = 1;", KIND.replace("}", "TWO = 2; }")), [], []),
        (proto("oneof o { string a = 1; string b = 2; }"), proto("oneof o { string a = 1; }"), ["/M/b"], ["/M/b"]),
        (proto("oneof o { string a = 1; } int32 c = 3;"), proto("int32 c = 3;"), [], ["/M/a"]),
        (
            proto("string a = 1; string b = 2;"),
            proto("oneof o { string a = 1; string b = 2; }"),
            ["/M/o"],
            ["/M/o", "/M/a", "/M/b"],
        ),
        (proto("string a = 1;"), proto("oneof o { string a = 1; string b = 2; }"), [], ["/M/a", "/M/b"]),
        (proto("oneof o { string a = 1; }"), proto("string a = 1;"), [], ["/M/a"]),
        (proto("string a = 1;"), proto("string a = 1;", package="q"), ["/"], ["/"]),
        (proto("string a = 1;", OTHER), proto("string a = 1;"), ["/Other"], ["/Other"]),
        (proto("message I { int32 x = 1; }"), proto("message I { string x = 1; }"), ["/M.I/x"], ["/M.I/x"]),
        (
            proto("optional int32 a = 1;", syntax="proto2"),
            proto("optional int32 a = 1; required int32 b = 2;", syntax="proto2"),
            ["/M/b"],
            ["/M/b"],
        ),
    ],
)  # fmt: skip
def test_each_rule(old: str, new: str, registry: list[str], promise: list[str]) -> None:
    """What a registry refuses is refused by our promise too."""
    assert registry == found(old, new, Level.BACKWARD)
    assert sorted(promise) == sorted(found(old, new, Level.PROMISE))


@pytest.mark.parametrize(
    "text",
    ["", "message", proto("string a = 1; string b = 1;"), proto("Gone a = 1;"), 'syntax = "proto3"; import "x.proto";'],
)
def test_what_does_not_compile_is_refused(text: str) -> None:
    """With the compiler's own words; an empty file has nothing that could be compared."""
    if not text:
        assert [] == found(text, text, Level.FULL)
        return
    with pytest.raises(SchemaUnusable, match="the compiler refuses it"):
        found(proto("string a = 1;"), text, Level.BACKWARD)


def test_the_types_of_google_can_be_imported() -> None:
    """They come with the compiler."""
    text = proto("google.protobuf.Timestamp at = 1;").replace(
        "package", 'import "google/protobuf/timestamp.proto"; package'
    )
    assert [] == found(text, text, Level.FULL)
    assert ["/M/at"] == found(text, proto("string at = 1;"), Level.BACKWARD)
