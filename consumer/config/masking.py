"""Hides secrets wherever a setting is shown: tables, logs, errors, repr()."""

from __future__ import annotations

import re
from typing import Any

from consumer.config.gateway_keys import shown_keys
from consumer.config.librdkafka import is_secret

HIDDEN = "***"

USER_INFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^:/?#]*):(?P<password>.*)@")
PAIR = re.compile(
    r"(?P<name>\b\w*(?:password|secret|token)\w*\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)"
)


_WHOLE = frozenset({"kafka_properties", "outbox_routes", "gateway_session_secret"})


def mask_url(text: str) -> str:
    """A URL or libpq connection string without its passwords."""
    text = USER_INFO.sub(lambda m: f"{m['scheme']}{m['user']}:{HIDDEN}@", text)
    return PAIR.sub(lambda m: f"{m['name']}{HIDDEN}", text)


def mask(name: str, value: Any) -> Any:
    """The value of setting `name` as it may be shown."""
    if name == "kafka_properties" and isinstance(value, dict):
        return {key: HIDDEN if is_secret(key) else inner for key, inner in value.items()}
    if name in _WHOLE and isinstance(value, str):
        return HIDDEN if value else value  # the others of them are JSON that was not taken apart
    if name == "outbox_routes" and isinstance(value, dict):
        return {sender: _masked_route(route) for sender, route in value.items()}
    if name == "gateway_keys":
        return shown_keys(value)
    if name.endswith("_url") and isinstance(value, str):
        return mask_url(value)
    return value


def _masked_route(route: Any) -> Any:
    plain = route.model_dump() if hasattr(route, "model_dump") else route
    if not isinstance(plain, dict):
        return HIDDEN
    return {
        part: mask("kafka_properties" if part == "properties" else part, value)
        for part, value in plain.items()
        if value
    }
