"""What AsyncAPI 3.0.0 demands of a document, as far as ours uses it: fields, references, bindings.

https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError


class Fields(NamedTuple):
    """Those of one object: each has to be, or may be."""

    needed: frozenset[str]
    allowed: frozenset[str]


def _fields(needed: str, allowed: str) -> Fields:
    return Fields(frozenset(needed.split()), frozenset(f"{needed} {allowed}".split()))


_ABOUT: Final = "title summary description tags externalDocs bindings"
FIELDS: Final = {
    "document": _fields("asyncapi info", "id servers defaultContentType channels operations "
                        "components"),
    "info": _fields("title version", "termsOfService contact license tags externalDocs "
                    "description"),
    "server": _fields("host protocol", f"protocolVersion pathname variables security {_ABOUT}"),
    "channel": _fields("", f"address messages servers parameters {_ABOUT}"),
    "operation": _fields("action channel", f"security traits messages reply {_ABOUT}"),
    "message": _fields("", f"headers payload correlationId contentType name examples traits "
                       f"{_ABOUT}"),
    "example": _fields("", "headers payload name summary"),
    "correlation id": _fields("location", "description"),
    "components": _fields("", "schemas servers channels operations messages securitySchemes "
                          "serverVariables parameters correlationIds replies replyAddresses "
                          "externalDocs tags operationTraits messageTraits serverBindings "
                          "channelBindings operationBindings messageBindings"),
    "kafka of a channel": _fields("", "topic partitions replicas topicConfiguration "
                                  "bindingVersion"),
    "kafka of an operation": _fields("", "groupId clientId bindingVersion"),
    "kafka of a message": _fields("", "key schemaIdLocation schemaIdPayloadEncoding "
                                  "schemaLookupStrategy bindingVersion"),
}  # fmt: skip
BINDINGS: Final = {"0.3.0", "0.4.0", "0.5.0"}
"""Versions of the Kafka binding that there are for 3.0.0."""
COMPONENT: Final = re.compile(r"[a-zA-Z0-9.\-_]+")
MEDIA_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
LOCATION: Final = re.compile(r"\$message\.(header|payload)#/.+")
HOST: Final = re.compile(r"[^\s/]+")

Found = Iterator[str]


def broken(document: Any) -> list[str]:
    """What is wrong with a document; of what hangs on a wrong part nothing more is said."""
    if not isinstance(document, dict):
        return ["the document is no object"]
    return [*_document(document), *_references(document, document, "#")]


def resolved(document: Any, reference: str) -> Any:
    """What a reference within the document leads to. Raises LookupError."""
    if not reference.startswith("#/"):
        raise LookupError(reference)
    found = document
    for part in reference[2:].split("/"):
        if not isinstance(found, dict):
            break
        found = found[part.replace("~1", "/").replace("~0", "~")]
    else:
        return found
    raise LookupError(reference)


def _document(document: dict[str, Any]) -> Found:
    yield from _has("document", document, "#")
    if document.get("asyncapi") != "3.0.0":
        yield "#/asyncapi: not 3.0.0"
    yield from _has("info", document.get("info"), "#/info")
    if not MEDIA_TYPE.fullmatch(document.get("defaultContentType", "text/plain")):
        yield "#/defaultContentType: no media type"
    yield from _each(document, "servers", _server)
    yield from _each(document, "channels", _channel)
    operations: dict[str, Any] = document.get("operations", {})
    for name, operation in operations.items():
        yield from _operation(document, operation, f"#/operations/{name}")
    components = document.get("components", {})
    yield from _has("components", components, "#/components")
    for kind, named in components.items():
        for name in named:
            if not COMPONENT.fullmatch(name):
                yield f"#/components/{kind}/{name}: no key of a component"
    yield from _each(components, "messages", _message, "#/components")
    yield from _each(components, "schemas", _schema, "#/components")


def _server(server: Any, at: str) -> Found:
    yield from _has("server", server, at)
    if not HOST.fullmatch(server.get("host", "")):
        yield f"{at}/host: a host and no URL"


def _channel(channel: Any, at: str) -> Found:
    yield from _has("channel", channel, at)
    if not isinstance(channel.get("address", ""), str | None):
        yield f"{at}/address: a text or null"
    yield from _kafka(channel, "channel", at)
    for name, message in channel.get("messages", {}).items():
        if "$ref" not in message:
            yield from _message(message, f"{at}/messages/{name}")


def _operation(document: Any, operation: Any, at: str) -> Found:
    yield from _has("operation", operation, at)
    if operation.get("action") not in {"send", "receive"}:
        yield f"{at}/action: send or receive"
    channel = operation.get("channel", {}).get("$ref", "")
    if not re.fullmatch("#/channels/[^/]+", channel):
        yield f"{at}/channel: a reference to one of the document's"
    for message in operation.get("messages", []):
        where = message.get("$ref", "")
        if where.rpartition("/")[0] != f"{channel}/messages":
            yield f"{at}/messages: {where} is not of the operation's channel"
    yield from _kafka(operation, "operation", at)
    for name in ("groupId", "clientId"):
        yield from _schema(_binding(operation).get(name, {}), f"{at}/bindings/kafka/{name}")


def _message(message: Any, at: str) -> Found:
    yield from _has("message", message, at)
    for name in ("headers", "payload"):
        yield from _schema(message.get(name, {}), f"{at}/{name}")
    if message.get("headers", {}).get("type", "object") != "object":
        yield f"{at}/headers: of an object"
    if not MEDIA_TYPE.fullmatch(message.get("contentType", "text/plain")):
        yield f"{at}/contentType: no media type"
    if (correlation := message.get("correlationId")) is not None:
        yield from _has("correlation id", correlation, f"{at}/correlationId")
        if not LOCATION.fullmatch(correlation.get("location", "")):
            yield f"{at}/correlationId/location: no runtime expression"
    for n, example in enumerate(message.get("examples", [])):
        yield from _has("example", example, f"{at}/examples/{n}")
        if not isinstance(example.get("headers", {}), dict):
            yield f"{at}/examples/{n}/headers: an object"
        if not {"headers", "payload"} & example.keys():
            yield f"{at}/examples/{n}: neither headers nor payload"
    yield from _kafka(message, "message", at)
    yield from _schema(_binding(message).get("key", {}), f"{at}/bindings/kafka/key")


def _kafka(of: Any, kind: str, at: str) -> Found:
    binding = _binding(of)
    yield from _has(f"kafka of a{'n' if kind == 'operation' else ''} {kind}", binding,
                    f"{at}/bindings/kafka")  # fmt: skip
    if binding.get("bindingVersion", "0.5.0") not in BINDINGS:
        yield f"{at}/bindings/kafka/bindingVersion: there is no such one"


def _binding(of: Any) -> Any:
    return of.get("bindings", {}).get("kafka", {})


def _schema(schema: Any, at: str) -> Found:
    try:
        Draft7Validator.check_schema(schema)
    except SchemaError as error:
        yield f"{at}: {error.message}"


def _has(kind: str, found: Any, at: str) -> Found:
    """Its fields; those that begin with x- are anybody's."""
    if not isinstance(found, dict):
        yield f"{at}: no object"
        return
    fields = FIELDS[kind]
    yield from (f"{at}: without {name}" for name in sorted(fields.needed - found.keys()))
    own = {name for name in found if not name.startswith("x-")}
    yield from (f"{at}: {name} is no field of it" for name in sorted(own - fields.allowed))


def _each(of: Any, name: str, check: Callable[[Any, str], Found], at: str = "#") -> Found:
    for key, one in of.get(name, {}).items():
        yield from check(one, f"{at}/{name}/{key}")


def _references(document: Any, of: Any, at: str) -> Found:
    """Each leads to something; in an example, a default or a list of values it is none."""
    if isinstance(of, list):
        for n, inner in enumerate(of):
            yield from _references(document, inner, f"{at}/{n}")
    elif isinstance(of, dict):
        if isinstance(reference := of.get("$ref"), str):
            try:
                resolved(document, reference)
            except LookupError:
                yield f"{at}: {reference} leads nowhere"
        for name, inner in of.items():
            if name not in {"examples", "default", "enum", "const"}:
                yield from _references(document, inner, f"{at}/{name}")
