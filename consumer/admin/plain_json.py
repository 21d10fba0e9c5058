"""JSON of what the journal and the settings hold."""

from __future__ import annotations

import base64
from typing import Any

import orjson


def to_json(value: Any) -> bytes:
    """Bytes become text where they are UTF-8, else base64; times are in UTC."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
    return orjson.dumps(value, default=plain, option=options)


def plain(value: Any) -> Any:
    """A value as one that JSON has a form for."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode()
    if isinstance(value, int):
        return int(value)  # pydantic's ByteSize
    return str(value)
