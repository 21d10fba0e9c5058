"""The fingerprint that tells payloads apart: same id and same fingerprint = a resend.

The canonical form is version 1, what `exact_json.canonical` writes. Stored fingerprints and those
of producers do not say which version made them: a change makes strangers of them all, so it needs
a version of the contract, never a silent edit. The vectors in docs/contract.md pin the form.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from feedback.contract.exact_json import canonical, is_json, parse_json

SIZE: Final = 16  # bytes


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
