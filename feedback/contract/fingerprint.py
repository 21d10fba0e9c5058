"""JSON with exact integers, its canonical form, and the fingerprint that tells payloads apart.

Same id and same fingerprint = a resend. orjson makes floats of integers beyond 64 bits, which
would give two payloads one fingerprint and a handler a changed amount: what may hold such an
integer is parsed and written by Python's json instead.
"""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import Any, Final, NoReturn

import orjson

# Raised when the canonical form changes, which makes every stored fingerprint a stranger.
FORM_VERSION: Final = 1
SIZE: Final = 16  # bytes

# 18 digits always fit in 64 bits.
_SUSPECT_RUN = b"0" * 19
_DIGITS_TO_ZERO = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


def is_json(content_type: str) -> bool:
    """Whether payloads of this media type are JSON: application/json or anything +json."""
    if content_type == "application/json":
        return True
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def has_long_number(data: bytes) -> bool:
    """Whether a run of 19 or more digits occurs: orjson might change such an integer."""
    return len(data) >= 19 and _SUSPECT_RUN in data.translate(_DIGITS_TO_ZERO)


def parse_json(data: bytes) -> Any:
    """Parses JSON; integers stay exact. Raises ValueError for what is not JSON, NaN among it."""
    if has_long_number(data):
        return _parse_exactly(data)
    return orjson.loads(data)


def canonical(value: Any) -> bytes:
    """The one form that equal JSON values share: sorted keys, no spaces, integers exact.

    It depends on the value alone. Raises ValueError for what JSON cannot hold.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, or nested deeper than orjson writes
        return _write_exactly(value, sort_keys=True)


def write_json(value: Any) -> bytes:
    """JSON with exact integers and keys in their own order. Raises ValueError as canonical."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return _write_exactly(value, sort_keys=False)


def digest_bytes(type: str, data: bytes) -> bytes:
    """The fingerprint of bytes that are canonical already, or are not JSON."""
    return blake2b(b"%b\0%b" % (type.encode(), data), digest_size=SIZE).digest()


def parse_and_fingerprint(type: str, payload: bytes, content_type: str) -> tuple[Any, bytes]:
    """(parsed payload, fingerprint), parsed once; the bytes themselves where it is not JSON.

    Raises ValueError where it should be JSON and is not: fingerprint() has one even then.
    """
    if not is_json(content_type):
        return payload, digest_bytes(type, payload)
    value = parse_json(payload)
    return value, digest_bytes(type, canonical(value))


def fingerprint(type: str, payload: bytes, content_type: str = "application/json") -> bytes:
    """The fingerprint, SIZE bytes; of the bytes as they are where they are not JSON."""
    try:
        return parse_and_fingerprint(type, payload, content_type)[1]
    except ValueError:
        return digest_bytes(type, payload)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number beyond the range of a double: {text[:40]}")
    return value


def _parse_exactly(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
        # Python's json lets half a surrogate pair through, orjson does not.
        if b"\\u" in data:
            canonical(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _write_exactly(value: Any, *, sort_keys: bool) -> bytes:
    try:
        text = json.dumps(
            value,
            sort_keys=sort_keys,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    return text.encode()
