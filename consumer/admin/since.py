"""Times as operators write them: an age, or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

AGO = re.compile(r"(\d+)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_since(text: str, now: datetime) -> datetime:
    """A moment: so long before `now` (``30m``, ``2h``, ``7d``), or a date or time.

    A time without an offset is UTC. Raises ValueError for anything else.
    """
    if match := AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is further back than time goes") from None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is neither an age, as 30m, 2h or 7d, nor a time") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
