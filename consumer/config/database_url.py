"""What a database's URL may be: checked here where libpq would show a part of the password."""

from __future__ import annotations

import re
from typing import Final

URL: Final = ("postgresql://", "postgres://")
_BARE_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_PAIR: Final = r"[^\s=]++\s*+=\s*+(?:'(?:[^'\\]|\\.)*+'|(?:[^\s\\]|\\.)*+)"
_PAIRS: Final = re.compile(rf"\s*+{_PAIR}(?:\s++{_PAIR})*+\s*+", re.DOTALL)


def check_database_url(text: str) -> None:
    """Raises ValueError, without what may be a password, for what libpq takes to be another."""
    if not text.startswith(URL):
        if "=" not in text or "://" in text.partition("=")[0]:
            raise ValueError("this is neither postgresql://... nor a libpq string (host=... ...)")
        if not _PAIRS.fullmatch(text):
            raise ValueError("write name=value ..., and a value with spaces as '...'")
        return
    if _BARE_PERCENT.search(text):
        raise ValueError("write a % of a name or a password as %25")
    if not _has_addresses(text.partition("://")[2]):
        raise ValueError(
            "look at host and port, and write an @ or a / of a name or a password as %40 or %2F"
        )


def _has_addresses(rest: str) -> bool:
    """Whether what libpq takes for hosts and ports can be some. The first @ before a / counts."""
    before_slash = rest.partition("/")[0]
    where = (rest.partition("@")[2] if "@" in before_slash else rest).partition("?")[0]
    hosts = where.partition("/")[0]
    ports = (re.sub(r"\[.*?\]", "", host).partition(":")[2] for host in hosts.split(","))
    return "@" not in where and all(port.strip().isdecimal() for port in ports if port.strip())
