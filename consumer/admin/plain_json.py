"""JSON of what the journal and the settings hold."""

from __future__ import annotations

import base64
from typing import Any, Final

import orjson

from feedback.contract.payloads import write_exactly

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


def to_json(value: Any) -> bytes:
    """Bytes become text where they are UTF-8, else base64; times are in UTC."""
    try:
        return orjson.dumps(value, default=plain, option=_OPTIONS)
    except TypeError:  # among other things for integers beyond 64 bits
        return write_exactly(value, default=_plainer)


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


def as_shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its fingerprint as the statuses have it, in hex."""
    value = row.get("fingerprint")
    return row if value is None else {**row, "fingerprint": bytes(value).hex()}


def _plainer(value: Any) -> Any:
    """For Python's json: also what only orjson knows."""
    return orjson.loads(orjson.dumps(value, default=plain, option=_OPTIONS))
