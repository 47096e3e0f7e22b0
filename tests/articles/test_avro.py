"""Avro: what its writers write, what documents look like, and payloads and schemas that mean harm."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest
from support.bounded import Hostile, outcomes, refusal
from support.properties import examples

from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Decoder, NamedSchema, Schema

NULLABLE = ["null", "string"]
AUTHOR = {"type": "record", "name": "Author", "namespace": "acme", "fields": [{"name": "name", "type": "string"}]}
BIG = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""2^63 - 1, as a count or a length."""
MEGABYTES = 4 << 20


def schema_of(kind: object) -> Schema:
    """A record whose field `a` has this type."""
    return Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))


def decoder_of(kind: object) -> Decoder:
    """Reads such records."""
    return compile_schema(schema_of(kind))


def written(kind: object, value: object) -> bytes:
    """Such a record, by fastavro."""
    out = BytesIO()
    schema = fastavro.parse_schema(json.loads(schema_of(kind).text))
    fastavro.schemaless_writer(out, schema, {"a": value})
    return out.getvalue()


def long(logical_type: str) -> dict[str, str]:
    """A number that means something else."""
    return {"type": "long", "logicalType": logical_type}


def array_of(items: object) -> dict[str, object]:
    """A type."""
    return {"type": "array", "items": items}


def nested_records(levels: int) -> str:
    """A schema."""
    kind: object = "int"
    for number in range(levels):
        kind = {"type": "record", "name": f"N{number}", "fields": [{"name": "a", "type": kind}]}
    return json.dumps(kind)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bytes", b"\x00\xff", "AP8="),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "YWI="),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-1.05"), "-1.05"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}, Decimal(120), "120"),
        ({"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9}, Decimal(-4), "-4"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, UUID(int=7).bytes, str(UUID(int=7))),
        ({"type": "int", "logicalType": "date"}, date(1969, 12, 31), "1969-12-31"),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), "01:02:03.004"),
        (long("time-micros"), time(23, 59, 59, 5), "23:59:59.000005"),
        (long("timestamp-millis"), datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "2024-01-02T03:04:05Z"),
        (long("timestamp-micros"), datetime(1969, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "1969-01-02T03:04:05.000006Z"),
        (long("timestamp-nanos"), 1_000_000_007, "1970-01-01T00:00:01.000000007Z"),
        (long("local-timestamp-millis"), datetime(2024, 1, 2, 3, 4, 5, 6000), "2024-01-02T03:04:05.006"),  # noqa: DTZ001  local
        (long("of our own"), -7, -7),
        ("double", float("nan"), "NaN"),
        ("float", float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_values_become_what_json_has(kind: object, value: object, expected: object) -> None:
    """Type by type, where JSON has none such. The next test has the other types, and unions."""
    document = decoder_of(kind)(written(kind, value))
    assert {"a": expected} == document
    assert type(expected) is type(document["a"])


def test_any_document_is_read_as_fastavro_reads_it() -> None:
    """Documents of 500 random schemas, in `--quick` 100, so that our functions and the library agree."""
    dice = random.Random(7)
    for _ in range(examples(500).max_examples):
        kind, value = _random(dice, 0)
        payload = written(kind, value)
        schema = fastavro.parse_schema(json.loads(schema_of(kind).text))
        assert fastavro.schemaless_reader(BytesIO(payload), schema, None) == decoder_of(kind)(payload)


def _random(dice: random.Random, level: int) -> tuple[Any, Any]:
    """A type without logical types, bytes and what is no number, and a value of it."""
    simple = [
        ("string", "é" * dice.choice([0, 1, 40, 9_000])),
        ("null", None),
        ("boolean", True),
        ("double", dice.random()),
    ]
    simple += [("long", dice.choice([-1, 1]) * dice.getrandbits(dice.randint(0, 62))), ("int", dice.getrandbits(20))]
    made = dice.randrange(4 if level < 3 else 1)
    kind, value = dice.choice(simple) if made == 0 else _random(dice, level + 1)
    if made == 1:
        return {"type": "array", "items": kind}, [value] * dice.choice([0, 1, 3, 70 if level > 2 else 2])
    if made == 2:
        return {"type": "map", "values": kind}, {
            f"k{number}": value for number in range(dice.choice([0, 1, 70 if level > 2 else 2]))
        }
    if made == 3:
        other = dice.choice(simple)
        fields = [{"name": "x", "type": kind}, {"name": "y", "type": other[0]}, {"name": "z", "type": NULLABLE}]
        name = f"N{dice.getrandbits(60)}"
        return {"type": "record", "name": name, "fields": fields}, {
            "x": value,
            "y": other[1],
            "z": dice.choice([None, "z"]),
        }
    return kind, value


@pytest.mark.parametrize(
    ("kind", "payload", "said"),
    [
        ("string", b"\x02x\x00", "1 bytes follow it"),  # another schema wrote the value, and its text would be wrong
        ("string", b"\x04\xc3(", "not UTF-8"),
        ("string", BIG, "ends too early"),
        ("bytes", BIG, "ends too early"),
        ("string", b"\x01", "ends too early"),
        ("bytes", b"\x01", "negative"),
        ("long", b"\xff" * 11, "64 bits"),
        ("long", b"\xff" * 9 + b"\x7f", "64 bits"),
        (NULLABLE, b"\x04", "no such branch"),
        (NULLABLE, b"\x01", "no such branch"),
        (["null", "long"], b"\x01", "no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no such symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no such symbol"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, b"abc", "ends too early"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9},
            b"\x82\x01" + b"\x7f" * 65,
            "a decimal has 65 bytes",
        ),
        ({"type": "long", "logicalType": "timestamp-millis"}, BIG, "years 1 to 9999"),
        ({"type": "int", "logicalType": "date"}, BIG, "years 1 to 9999"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "24 hours"),
    ],
)
def test_a_value_against_its_type_is_refused(kind: object, payload: bytes, said: str) -> None:
    """With the rule that it breaks, and nothing of its text."""
    assert said in refusal(lambda: decoder_of(kind)(payload))


@pytest.mark.slow
def test_bombs_end_in_one_refusal_within_192_mb() -> None:
    """Counts of 2^63, values that grow, and a million levels, each in a process with limited memory."""
    tree = Schema(
        "AVRO", '{"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "array", "items": "T"}}]}'
    )
    chain = Schema("AVRO", '{"type": "record", "name": "T", "fields": [{"name": "c", "type": ["null", "T"]}]}')
    endless = Schema("AVRO", '{"type": "record", "name": "T", "fields": [{"name": "c", "type": "T"}]}')
    laughs = [{"name": "f0", "type": {"type": "record", "name": "N0", "fields": []}}]
    for number in range(1, 60):
        twice: list[dict[str, Any]] = [{"name": name, "type": f"N{number - 1}"} for name in "xy"]
        laughs.append({"name": f"f{number}", "type": {"type": "record", "name": f"N{number}", "fields": twice}})
    nulls = {
        "type": "record",
        "name": "Z",
        "fields": [{"name": f"n{number}", "type": "null"} for number in range(1_000)],
    }
    empty: Mapping[str, object] = {"type": "record", "name": "E", "fields": []}
    zeros = (b"\x00", MEGABYTES)
    long = {"type": "record", "name": "L", "fields": [{"name": "n" * 300_000, "type": "null"}]}
    symbols = {"type": "enum", "name": "S", "symbols": ["s" * 300_000]}
    names = [
        Hostile("a long name of a field", schema_of(array_of(long)), [(b"\x80\xb5\x18", 1), (b"\x00", 200_000)]),
        Hostile("a long symbol", schema_of(array_of(symbols)), [(b"\x80\xb5\x18", 1), (b"\x00", 200_000)]),
    ]
    cases = [
        Hostile("nulls", schema_of(array_of("null")), [(BIG, 1)]),
        Hostile("empty records", schema_of({"type": "array", "items": empty}), [(BIG, 1)]),
        Hostile("fixed of no bytes", schema_of(array_of({"type": "fixed", "name": "F", "size": 0})), [(BIG, 1)]),
        Hostile("2^31 nulls", schema_of(array_of("null")), [(b"\x80\x80\x80\x80\x10", 1)]),
        Hostile("negative count", schema_of(array_of("null")), [(b"\xff" * 9 + b"\x01\x00", 1)]),
        Hostile("many blocks", schema_of(array_of("null")), [(b"\xfe\xff\x03", MEGABYTES // 3)]),
        Hostile("1,000 nulls a byte", schema_of(array_of(["int", nulls])), [(b"\x80\x80\x80\x04", 1), (b"\x02", MEGABYTES)]),
        Hostile("arrays of arrays", schema_of(array_of(array_of("int"))), [(b"\x80\x80\x80\x04", 1), zeros]),
        Hostile("maps of nulls", schema_of({"type": "map", "values": "null"}), [(b"\x80\x80\x80\x04", 1), zeros]),
        Hostile("tree", tree, [(b"\x02", 90), (b"\x80\x80\x80\x04", 1), zeros]),
        Hostile("chain", chain, [(b"\x02", 1_000_000), (b"\x00", 1)]),
        Hostile("endless", endless, [(b"", 1)]),
        Hostile("laughs", Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": laughs})), [(b"", 1)]),
    ]  # fmt: skip
    found = outcomes(cases)
    assert [case.name for case in cases] == list(found)
    levels = "value does not follow its Avro schema: more than 100 levels"
    too_many = "value has more than 500000 values, the most for its length"
    few = {
        name: f"value has more than {most} values, the most for its length"
        for most, small in {
            10_000: ["laughs"],
            10_500: ["2^31 nulls"],
            11_000: ["nulls", "empty records", "fixed of no bytes"],
            11_100: ["negative count"],
        }.items()
        for name in small
    }
    assert {name: levels if name in {"chain", "endless"} else few.get(name, too_many) for name in found} == found
    repeated = "value repeats names of its schema in more than 16000000 bytes, the most for its length"
    assert dict.fromkeys(("a long name of a field", "a long symbol"), repeated) == outcomes(names)


@pytest.mark.slow
def test_what_many_types_contain_is_made_once() -> None:
    """Each of 80 nested records is also read by its name, and does not make the types within it again."""
    optional = [{"name": f"f{number}", "type": {"type": "array", "items": "int"}} for number in range(100)]
    kind: Any = "int"
    for number in range(80):
        kind = {"type": "record", "name": f"N{number}", "fields": [{"name": "a", "type": kind}, *optional]}
    fields = [
        {"name": "a", "type": kind},
        *({"name": f"n{number}", "type": f"N{number}"} for number in range(79, 0, -1)),
    ]
    schema = Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))
    payload = Hostile("names", schema, [(b"\x00", sum(100 * (n + 1) + 1 for n in [*range(1, 80), 79]))])
    assert "read" in outcomes([payload], memory_bytes=100 << 20)["names"]


@pytest.mark.slow
def test_the_check_of_bombs_sees_what_takes_too_much() -> None:
    """A negative control: what may be read does not fit into half of its size."""
    kind = array_of("string")
    strings = Hostile("strings", schema_of(kind), [(written(kind, ["\U0001f68b" * 62_500] * 16), 1)])
    assert {"strings": "read: 1 fields"} == outcomes([strings])
    assert {"strings": "MemoryError"} == outcomes([strings], memory_bytes=MEGABYTES // 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 1_000_000, "depth limit"),
        ('{"type":' * 1_000 + '"int"' + "}" * 1_000, "more than 100 levels"),
        ("[" * 1_000 + "]" * 1_000, "more than 100 levels"),
        (json.dumps(reduce(lambda kind, _: array_of(kind), range(300), array_of("int"))), "more than 100 levels"),
        (nested_records(110), "more than 100 levels"),
        ('"string"', "top level is not a record"),
        ('["null", "string"]', "top level is not a record"),
        ('{"type": "map", "values": "string"}', "top level is not a record"),
        ("acme.Unknown", "acme.Unknown"),
        ("5", "neither a name"),
        ('{"type": "record", "name": "R"}', "`fields` is not a list"),
        ('{"type": "record", "name": "R", "fields": [5]}', "a field has no name"),
        ('{"type": "record", "fields": []}', "name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nope"}]}', "Nope"),
        (schema_of({"type": "fixed", "name": "F", "size": -1}).text, "size"),
        (json.dumps({"type": "record", "name": "R" * 257, "fields": []}), "more than 256 characters"),
        (json.dumps({"type": "record", "name": "R", "namespace": "n" * 257, "fields": []}), "more than 256 characters"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(text: str, said: str) -> None:
    """With a reason that is short, however long the schema is."""
    reason = refusal(lambda: compile_schema(Schema("AVRO", text)))
    assert said in reason
    assert len(reason) < 300


@pytest.mark.slow
def test_a_large_schema_is_compiled_in_seconds() -> None:
    """A union of 20,000 records, an enum of 80,000 symbols, a default of half a megabyte: nobody looks at the last one."""
    union = [{"type": "record", "name": f"N{number}", "fields": []} for number in range(20_000)]
    assert {"a": {}} == decoder_of(union)(b"\x00")
    assert {"a": "S0"} == decoder_of(
        {"type": "enum", "name": "E", "symbols": [f"S{number}" for number in range(80_000)]}
    )(b"\x00")
    default = {"name": "a", "type": "int", "default": "x" * 500_000}
    assert {"a": 0} == compile_schema(Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": [default]})))(
        b"\x00"
    )


def test_a_schema_may_be_the_name_of_a_reference() -> None:
    """Registries have references too. A path in a name opens no file."""
    for name in ("a", "../../etc/passwd"):
        schema = Schema("AVRO", "acme.Author", (NamedSchema(name, json.dumps(AUTHOR)),))
        assert {"name": "x"} == compile_schema(schema)(b"\x02x")


def test_a_type_inside_itself_is_read_to_a_hundred_levels() -> None:
    """Comments on comments."""
    fields = [{"name": "text", "type": "string"}, {"name": "replies", "type": array_of("C")}]
    comment = {"type": "record", "name": "C", "fields": fields}
    payload = b"\x02x" + b"\x02\x02x" * 100 + b"\x00" * 101
    document = compile_schema(Schema("AVRO", json.dumps(comment)))(payload)
    levels = 0
    while document["replies"]:
        document, levels = document["replies"][0], levels + 1
    assert 100 == levels
