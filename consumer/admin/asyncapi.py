"""The AsyncAPI 3.0 document of an app: who wants to send its requests learns their shapes there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from consumer.admin.plain_json import to_json
from consumer.admin.schema_examples import NoExample, example_of
from processing.handlers.annotations import Shape
from processing.handlers.app import App
from processing.handlers.handler import Handler

BINDING: Final = "0.5.0"
HEADERS: Final = "oncepool.headers"
_TIME: Final = {"type": "string", "format": "date-time"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}
_PLAIN: Final = {dict: "object", list: "array", type(None): "null"}
_NOT_IN_A_KEY: Final = re.compile(r"[^A-Za-z0-9._-]")

_HEADERS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["ce_id", "ce_type"],
    "properties": {
        "ce_id": {**_NAME, "description": "Request id. The same id always means the same request."},
        "ce_type": {**_NAME, "description": "Request type: the name of its handler."},
        "ce_specversion": {"type": "string", "description": "As CloudEvents 1.0 has it."},
        "ce_source": {"type": "string", "description": "As CloudEvents 1.0 has it."},
        "ce_time": {**_TIME, "description": "When the producer made it."},
        "ce_expirytime": {**_TIME, "description": "After it the request is not started any more."},
        "ce_notbefore": {**_TIME, "description": "It is not run before it."},
        "ce_timeout": {"type": "string", "description": "Seconds that one run may take."},
        "ce_reference": {**_NAME, "description": "Of those that wait under one the newest runs."},
        "ce_replyto": {"type": "string", "description": "Redis channel that hears of statuses."},
        "content-type": {"type": "string", "default": "application/json"},
        "traceparent": {"type": "string", "description": "W3C trace context."},
        "tracestate": {"type": "string", "description": "W3C trace context."},
    },
}


@dataclass(frozen=True, slots=True)
class RequestPlace:
    """Where an app's requests go: topics, the group that reads them, `host:port` of brokers."""

    group: str
    topics: Sequence[str]
    servers: str = ""


def asyncapi_document(app: App, place: RequestPlace, *, version: str) -> dict[str, Any]:
    """The document, as JSON has it. Raises RegistrationError where an annotation is unusable."""
    keys = _keys(app.handlers)
    schemas, definitions = _schemas(app)
    messages = {keys[t]: _message(h, schemas) for t, h in app.handlers.items()}
    document: dict[str, Any] = {
        "asyncapi": "3.0.0",
        "info": {
            "title": place.group,
            "version": version,
            "description": "Requests that must not run twice. Send one again with the same id as "
            "often as needed: it runs once, and its status says what became of it.",
        },
        "defaultContentType": "application/json",
        "servers": _servers(place.servers),
        "channels": {topic: _channel(topic, app, messages) for topic in place.topics},
        "operations": {
            f"{topic}.{key}": _operation(topic, key, place.group)
            for topic in place.topics
            if topic not in app.decoders
            for key in messages
        },
        "components": {"messages": messages, "schemas": {HEADERS: _HEADERS, **definitions}},
    }
    if not document["servers"]:
        del document["servers"]
    return document


def _keys(types: Iterable[str]) -> dict[str, str]:
    """Type -> its key in the document, which may not have every character."""
    keys: dict[str, str] = {}
    for name in types:
        key = plain = _NOT_IN_A_KEY.sub("_", name)
        number = 1
        while key in keys.values():
            number += 1
            key = f"{plain}-{number}"
        keys[name] = key
    return keys


def _servers(addresses: str) -> dict[str, Any]:
    """Each broker that clients are led to first."""
    hosts = [host.strip() for host in addresses.split(",") if host.strip()]
    return {
        f"kafka-{number}": {"host": host, "protocol": "kafka"}
        for number, host in enumerate(hosts, 1)
    }


def _channel(topic: str, app: App, messages: Mapping[str, Any]) -> dict[str, Any]:
    kafka = {"topic": topic, "bindingVersion": BINDING}
    channel: dict[str, Any] = {"address": topic, "bindings": {"kafka": kafka}}
    if topic in app.decoders:
        channel["description"] = (
            "Messages in a format of their own: a decoder of the app makes requests of them."
        )
        return channel
    channel["messages"] = {key: {"$ref": f"#/components/messages/{key}"} for key in messages}
    return channel


def _operation(topic: str, key: str, group: str) -> dict[str, Any]:
    group_id = {"type": "string", "enum": [group]}
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{topic}"},
        "messages": [{"$ref": f"#/channels/{topic}/messages/{key}"}],
        "bindings": {"kafka": {"groupId": group_id, "bindingVersion": BINDING}},
    }


def _message(handler: Handler, schemas: _Schemas) -> dict[str, Any]:
    """One type. `x-oncepool` has what a producer may want to know of its handler."""
    shape, _ = handler.shapes()
    about: dict[str, Any] = {
        "effect": handler.effect,
        "attempts": handler.retries.attempts,
        "status_ttl": handler.status_ttl,
    }
    if handler.timeout is not None:
        about["timeout"] = handler.timeout
    if (result := schemas.get((handler.type, "serialization"))) is not None:
        about["result"] = result
    headers = {"type": "object", "properties": {"ce_type": {"const": handler.type}}}
    message: dict[str, Any] = {
        "name": handler.type,
        "title": handler.type,
        "headers": {**headers, "allOf": [{"$ref": f"#/components/schemas/{HEADERS}"}]},
        "correlationId": {"location": "$message.header#/ce_id"},
        "bindings": {"kafka": {"key": {"type": "string"}, "bindingVersion": BINDING}},
        "x-oncepool": about,
    }
    # A model's docstring is that of its schema; the class of a callable object is no summary.
    if text := inspect.getdoc(handler.signature.function):
        message["summary"] = text.splitlines()[0]
    if shape.raw:
        message["contentType"] = "application/octet-stream"
        return message
    message["contentType"] = "application/json"
    message["payload"] = schemas[handler.type, "validation"]
    if example := schemas.examples.get(handler.type):
        message["examples"] = [
            {"headers": {"ce_id": "request-1", "ce_type": handler.type}, "payload": example[0]}
        ]
    return message


class _Schemas(dict[tuple[str, str], Any]):
    """(Type, "validation" or "serialization") -> schema of its payload or result."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[str, tuple[Any]] = {}
        """Type -> a payload that its handler takes; none where none could be made up."""


def _schemas(app: App) -> tuple[_Schemas, dict[str, Any]]:
    """The schemas of all types, and those that they refer to."""
    found = _Schemas()
    inputs: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = []
    for name, handler in app.handlers.items():
        payload, result = handler.shapes()
        if payload.adapter is None:
            found[name, "validation"] = _plain_schema(payload)
        else:
            inputs.append((name, "validation", payload.adapter))
        if result.adapter is not None:
            inputs.append((name, "serialization", result.adapter))
        elif result.plain_type is not None:
            found[name, "serialization"] = _plain_schema(result)
    made, around = TypeAdapter.json_schemas(
        inputs, ref_template="#/components/schemas/{model}", schema_generator=_Draft7
    )
    definitions: dict[str, Any] = around.get("$defs", {})
    for (name, mode, adapter), schema in zip(inputs, made.values(), strict=True):
        found[name, mode] = schema
        if mode == "serialization":
            continue
        try:
            example = example_of(schema, definitions)
            adapter.validate_json(to_json(example))
        except (NoExample, ValueError):
            continue
        found.examples[name] = (example,)
    return found, definitions


def _plain_schema(shape: Shape) -> dict[str, Any]:
    return {} if shape.plain_type not in _PLAIN else {"type": _PLAIN[shape.plain_type]}


class _Draft7(GenerateJsonSchema):
    """Schemas as AsyncAPI has them: of draft 7, where a discriminator would be a mere name.

    What JSON Schema has no word for (a validator of the user's own) is any value.
    """

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        made = super().tagged_union_schema(schema)
        made.pop("discriminator", None)
        return made

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        made = super().tuple_schema(schema)
        if "prefixItems" in made:
            rest = made.pop("items", None)
            made["items"] = made.pop("prefixItems")
            if rest is not None:
                made["additionalItems"] = rest
        return made

    def handle_invalid_for_json_schema(
        self, schema: core_schema.CoreSchema, error_info: str
    ) -> JsonSchemaValue:
        del schema, error_info
        return {}
