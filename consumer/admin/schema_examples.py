"""A value that a JSON schema takes, made up from the schema alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEEPEST = 12
_REFERENCE = "#/components/schemas/"
_STRINGS: Final = {
    "date-time": "2030-05-17T12:30:00Z",
    "date": "2030-05-17",
    "time": "12:30:00Z",
    "duration": "PT30S",
    "uuid": "0197c3a2-6f1e-7c44-9a55-0d7f7a3f9b10",
    "uri": "https://example.com/",
    "email": "ann@example.com",
    "ipv4": "192.0.2.1",
}


class NoExample(Exception):
    """None could be made up: it refers to itself without an end."""


def example_of(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int = 0) -> Any:
    """The schema's own example or default, else the smallest value. Raises NoExample.

    Not every schema is understood (patterns are not), so the value has to be tried.
    """
    if depth > DEEPEST:
        raise NoExample
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(_REFERENCE)
        return example_of(definitions[name], definitions, depth + 1)
    if schema.get("examples"):
        return schema["examples"][0]
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            return example_of(schema[union][0], definitions, depth + 1)
    return _of_type(schema, definitions, depth)


def _of_type(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    value: Any = None
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            required = schema.get("required", ())
            # A constant tells the members of a union apart, also where it has a default.
            wanted = {name: f for name, f in fields.items() if name in required or "const" in f}
            value = {name: example_of(f, definitions, depth + 1) for name, f in wanted.items()}
        case "array":
            value = _array(schema, definitions, depth)
        case "string":
            text = _STRINGS.get(schema.get("format", ""), "text")
            value = text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case "integer" | "number":
            value = _number(schema)
        case "boolean":
            value = True
    return value


def _array(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> list[Any]:
    items = schema.get("items", {})
    if isinstance(items, list):
        return [example_of(item, definitions, depth + 1) for item in items]
    return [example_of(items, definitions, depth + 1)] * schema.get("minItems", 0)


def _number(schema: Mapping[str, Any]) -> Any:
    """The smallest whole number that is allowed from 1 on, or below the largest one."""
    least = max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    step = schema.get("multipleOf")
    if step:
        least = -(-least // step) * step
    return min(least, schema["maximum"]) if "maximum" in schema else least
