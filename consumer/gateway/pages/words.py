"""Figures, times and places in words. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

NOTHING: Final = "-"
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def count(number: Any) -> str:
    """A whole number, readable."""
    return NOTHING if number is None else f"{int(number):,}"


def figure(number: Any) -> str:
    """Any number, short."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def age(seconds: Any) -> str:
    """A length of time, with two units at most."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = int(seconds)
    for n, (size, unit) in enumerate(_UNITS):
        if left >= size:
            whole, rest = divmod(left, size)
            if n + 1 == len(_UNITS) or not rest // _UNITS[n + 1][0]:
                return f"{whole} {unit}"
            return f"{whole} {unit} {rest // _UNITS[n + 1][0]} {_UNITS[n + 1][1]}"
    return "0 s"


def moment(at: Any) -> datetime | None:
    """A time in UTC, of a time or of RFC 3339."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    return at.astimezone(UTC) if isinstance(at, datetime) else None


def when(at: Any) -> str:
    """A time, to the second."""
    known = moment(at)
    return NOTHING if known is None else known.strftime("%Y-%m-%d %H:%M:%S")


def since(at: Any, now: datetime) -> str:
    """How long ago a time is."""
    known = moment(at)
    return NOTHING if known is None else age(max(0.0, (now - known).total_seconds()))


def trace_id(traceparent: str) -> str:
    """Of a W3C trace context; "" where it is none."""
    parts = traceparent.split("-")
    if len(parts) < 4 or len(parts[1]) != 32 or set(parts[1]) - set("0123456789abcdef"):
        return ""
    return "" if set(parts[1]) == {"0"} else parts[1]
