"""Hides secrets wherever a setting is shown: tables, logs, errors, repr()."""

from __future__ import annotations

import re
from typing import Any

from consumer.config.gateway_keys import shown_keys
from consumer.config.librdkafka import is_secret
from consumer.config.setting_types import OutboxRoute, dotted

HIDDEN = "***"

_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^:/?#]*):(?P<password>.*)@")
_NAME = r"(?P<name>\b\w*(?:password|secret|token)\w*\s*=\s*)"
OPTION = re.compile(rf"{_NAME}[^\s&]+")
"""Of a URL."""
PAIR = re.compile(
    rf"{_NAME}(?:'(?:[^'\\]|\\.)*(?:'|$)|(?:[^\s\\]|\\.)+)(?:\s+[^\s=]+(?=\s|$))*", re.DOTALL
)
"""Of a libpq connection string, with the words that stand behind it in a password whose spaces are
not escaped."""


def mask_url(text: str) -> str:
    """A URL or libpq connection string without its passwords."""
    text = USER_INFO.sub(lambda m: f"{m['scheme']}{m['user']}:{HIDDEN}@", text)
    return (OPTION if _SCHEME.match(text) else PAIR).sub(lambda m: f"{m['name']}{HIDDEN}", text)


def mask(name: str, value: Any) -> Any:
    """The value of setting `name` as it may be shown, also where it is of another kind."""
    match name:
        case "kafka_properties":
            shown = _masked_properties(value)
        case "outbox_routes" if isinstance(value, dict):
            shown = {sender: _masked_route(route) for sender, route in value.items()}
        case "gateway_keys":
            shown = shown_keys(value)
        case "outbox_routes" | "gateway_session_secret":
            shown = HIDDEN if value else value
        case _ if name.endswith("_url"):
            shown = mask_url(value) if isinstance(value, str) else HIDDEN
        case _:
            shown = value
    return shown


def _masked_properties(properties: Any) -> Any:
    """Of librdkafka; what is no table is JSON that was not taken apart."""
    if not isinstance(properties, dict):
        return HIDDEN if properties else properties
    flat = dotted(properties)  # as a TOML file may nest what belongs together: sasl.password
    return {key: HIDDEN if is_secret(key) else inner for key, inner in flat.items()}


def _masked_route(route: Any) -> Any:
    plain = route.model_dump() if hasattr(route, "model_dump") else route
    if not isinstance(plain, dict):
        return HIDDEN
    return {part: _masked_part(part, value) for part, value in plain.items() if value}


def _masked_part(part: str, value: Any) -> Any:
    if part not in OutboxRoute.model_fields:  # misspelt: it may be anything
        return HIDDEN
    return mask("kafka_properties" if part == "properties" else part, value)
