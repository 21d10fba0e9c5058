"""The fingerprint, which tells payloads apart: same id and same fingerprint = a resend.

Its canonical form is version 1, what `canonical` writes. Stored fingerprints and those of producers
do not say which version made them: a change makes strangers of them all, so it needs a version of
the contract, never a silent edit. The vectors in docs/contract.md pin the form.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson

from feedback.contract.payloads import is_json, parse_json, write_exactly

SIZE: Final = 16  # bytes
_DOUBLES: Final = (1e16, 1.5e-7, 1e-5, 100.0)
_AS_PINNED: Final = b"[1e+16,1.5e-7,0.00001,100.0]"
if orjson.dumps(_DOUBLES) != _AS_PINNED:
    # The same payload would be another one to consumers and producers elsewhere.
    raise ImportError(
        f"orjson {orjson.__version__} writes {_DOUBLES} as {orjson.dumps(_DOUBLES).decode()}, and"
        f" fingerprints are made of {_AS_PINNED.decode()}: install orjson>=3.11.7"
    )


def canonical(value: Any) -> bytes:
    """The one form that equal JSON values share: sorted keys, no spaces, integers exact.

    It depends on the value alone. Raises ValueError for what JSON cannot hold.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits, or nested deeper than orjson writes
        return write_exactly(value, sort_keys=True)


def digest_bytes(type: str, data: bytes) -> bytes:
    """The fingerprint of bytes that are canonical already, or are not JSON."""
    begun = _begun(type).copy()
    begun.update(data)
    return begun.digest()


@lru_cache(maxsize=1024)
def _begun(type: str) -> blake2b:
    """The digest of all that stands before the data."""
    return blake2b(b"%b\0" % type.encode(), digest_size=SIZE)


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
