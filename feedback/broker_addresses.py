"""The form of the addresses of Kafka brokers. Pure."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final

_PROTOCOL: Final = re.compile(r"(plaintext|ssl|sasl_plaintext|sasl_ssl)://", re.IGNORECASE)
_PORT: Final = re.compile(r":([0-9]{1,5})\Z")
_NO_HOST: Final = re.compile(r"[\s:;/@,\[\]]")


def check_servers(text: str) -> None:
    """Raises ValueError for what the client library would look for in vain.

    It takes addresses with commas between: each a host, a port (9092 where there is none), and a
    protocol before them where it is not the configured one.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("this names no server; write host:port,host:port")
    for part in parts:
        if not _is_address(_PROTOCOL.sub("", part, count=1) if _PROTOCOL.match(part) else part):
            named = "this" if "@" in part else repr(part)  # it may be a password
            raise ValueError(f"{named} is no server's address; write host:port,host:port")


def _is_address(text: str) -> bool:
    if _is_ipv6(text):
        return True
    if (found := _PORT.search(text)) is not None:
        if not 0 < int(found[1]) < 65536:
            return False
        text = text[: found.start()]
    if text.startswith("[") and text.endswith("]"):
        return _is_ipv6(text[1:-1])
    return bool(text) and _NO_HOST.search(text) is None


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
