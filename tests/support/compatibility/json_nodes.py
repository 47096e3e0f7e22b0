"""JSON Schemas as the comparison needs them: local references resolved, annotations left out."""

from __future__ import annotations

import json
from typing import Any

import orjson

from support.compatibility.findings import SchemaUnusable

Node = dict[str, Any]
"""A schema that is an object. `True` is `EVERYTHING`, and `False` is `NOTHING`."""

EVERYTHING: Node = {}
NOTHING: Node = {"not": {}}
_LEAST = "minimum exclusiveMinimum minLength minItems minProperties minContains"
_MOST = "maximum exclusiveMaximum maxLength maxItems maxProperties maxContains"
_OBJECTS = "properties required additionalProperties patternProperties"
_ARRAYS = "items prefixItems additionalItems uniqueItems"
_RARE = "not if then else contains propertyNames dependencies dependentRequired dependentSchemas"
_REST = "type pattern const enum allOf anyOf oneOf unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef"
LEAST, MOST = frozenset(_LEAST.split()), frozenset(_MOST.split())
LIMITS = LEAST | MOST | {"multipleOf"}
KEYWORDS = LIMITS | frozenset(f"{_OBJECTS} {_ARRAYS} {_RARE} {_REST}".split())
"""The keywords that decide which documents are valid. `format` is an annotation, as it is for the registries."""

COMBINATIONS = frozenset({"allOf", "anyOf", "oneOf"})


def canonical(value: Any) -> bytes:  # noqa: ANN401  any JSON
    """One text for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")


_FORMS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("properties", "patternProperties", "dependentRequired"), dict),
    **dict.fromkeys(("enum", "prefixItems", "required", *COMBINATIONS), list),
    **dict.fromkeys(LIMITS, (int, float)),
    "type": (str, list),
    "pattern": str,
}


def _well_formed(keyword: str, value: Any) -> bool:  # noqa: ANN401  any JSON
    """Whether a keyword has the form that the comparison relies on. Subschemas are looked at when they are compared."""
    if not isinstance(value, _FORMS.get(keyword, object)):
        return False
    names = value if keyword in {"type", "required"} and isinstance(value, list) else []
    return all(isinstance(name, str) for name in names)


class JsonSchema:
    """A parsed schema, and its nodes."""

    def __init__(self, root: Any) -> None:  # noqa: ANN401  an object, true or false
        self.root = root
        self.text = canonical(root)
        self._nodes: dict[int, tuple[Node, Node]] = {}  # the part beside its node, so that its id stays its own
        self._plain: dict[int, tuple[Node, Node]] = {}

    def node(self, schema: Any) -> Node:  # noqa: ANN401  an object, true or false
        """A part of the schema, with its reference resolved. The same part gives the same object."""
        if schema is True:
            return EVERYTHING
        if schema is False:
            return NOTHING
        if not isinstance(schema, dict):
            raise SchemaUnusable(f"a schema is an object, true or false, and not {type(schema).__name__}")
        if schema is EVERYTHING or schema is NOTHING:
            return schema
        if id(schema) not in self._nodes:
            self._nodes[id(schema)] = (schema, self._made(schema))
        return self._nodes[id(schema)][1]

    def without_combinations(self, node: Node) -> Node:
        """A node without `allOf`, `anyOf` and `oneOf`. The same node gives the same object."""
        if not node.keys() & COMBINATIONS:
            return node
        if id(node) not in self._plain:
            self._plain[id(node)] = (node, {key: value for key, value in node.items() if key not in COMBINATIONS})
        return self._plain[id(node)][1]

    def _made(self, schema: Node) -> Node:
        node = {key: value for key, value in schema.items() if key in KEYWORDS}
        for key, value in node.items():
            if not _well_formed(key, value):
                raise SchemaUnusable(f"its keyword {key} is not as JSON Schema describes it")
        if "$ref" not in schema:
            return node
        target = self._target(schema["$ref"])
        if not node:
            return target
        if target.keys() & node.keys() or "allOf" in node:
            return {**node, "allOf": [*node.get("allOf", ()), target]}
        return {**target, **node}

    def _target(self, reference: Any) -> Node:  # noqa: ANN401  whatever stands there
        seen: list[Any] = []
        while True:
            if reference in seen:
                raise SchemaUnusable(f"its reference {reference} leads to itself")
            seen.append(reference)
            found = self._found(reference)
            if isinstance(found, dict) and found.keys() & (KEYWORDS | {"$ref"}) == {"$ref"}:
                reference = found["$ref"]
            elif isinstance(found, dict) and "$ref" in found and found["$ref"] in seen:
                raise SchemaUnusable(f"its reference {reference} leads to itself")
            else:
                return self.node(found)

    def _found(self, reference: Any) -> Any:  # noqa: ANN401  any JSON
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaUnusable(f"it refers to {reference}, which is not in the same file")
        if reference not in {"#", ""} and not reference.startswith("#/"):
            raise SchemaUnusable(f"it refers to {reference}; only paths, such as #/$defs/name, are followed")
        found = self.root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise SchemaUnusable(f"it refers to {reference}, which is not there")
        return found


def parse(text: str) -> JsonSchema:
    """A schema from JSON. Raises SchemaUnusable."""
    try:
        root = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaUnusable(f"it is not JSON: {error}") from None
    if not isinstance(root, dict | bool):
        raise SchemaUnusable("it is no JSON Schema: a schema is an object, true or false")
    return JsonSchema(root)
