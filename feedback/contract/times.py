"""Times that others give: made safe for the journal and for Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST: Final = datetime.fromtimestamp(0, UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""A day before the last that Python knows: in any time zone it is a date that it can hold."""

_LATEST_SECONDS: Final = LATEST.timestamp()
_LATEST_MICROSECONDS: Final = round(_LATEST_SECONDS * 1_000_000)


def moment(seconds: float) -> datetime:
    """The time so many seconds after the epoch, or the nearest one that can be kept.

    Anybody may send any number: a producer that gives microseconds for milliseconds, or none (-1).
    """
    if not seconds > 0:
        return EARLIEST
    return LATEST if seconds >= _LATEST_SECONDS else datetime.fromtimestamp(seconds, UTC)


def microseconds(seconds: float) -> int:
    """As `moment`, in whole microseconds after the epoch."""
    if not seconds > 0:
        return 0
    # Three times for each request, and min() would take as long as all the rest.
    return _LATEST_MICROSECONDS if seconds >= _LATEST_SECONDS else round(seconds * 1_000_000)


def later(time: datetime, seconds: float) -> datetime:
    """The time so many seconds after `time`, 0 or more, or the latest one that can be kept."""
    return (
        LATEST if seconds >= (LATEST - time).total_seconds() else time + timedelta(seconds=seconds)
    )
