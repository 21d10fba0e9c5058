"""What a message says of its time that is sent long after it was made.

Brokers delete by the timestamps of messages: one that is older than its topic keeps is confirmed,
and gone at once, or refused (`message.timestamp.before.max.ms`). So it goes with the present time,
and the one at which it was made stands in `ce_time`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from feedback.contract.headers import format_time, valid_id
from feedback.contract.ids import time_within
from feedback.contract.times import moment

LATE: Final = 60.0
"""Seconds: no topic keeps its messages for so short a time, and few messages are sent later, as
each header costs their consumers."""


def timely(
    made: datetime, headers: Sequence[tuple[str, bytes | None]], present: datetime
) -> tuple[int, list[tuple[str, bytes]]]:
    """(timestamp in milliseconds, further headers) of a message that is sent at `present`.

    That is by the clock of the database that has the message: the sender's own may be wrong.
    """
    timestamp, now = round(made.timestamp() * 1000), round(present.timestamp() * 1000)
    if timestamp >= now - LATE * 1000:
        return timestamp, []
    given = dict(headers)
    if "ce_time" in given:
        return now, []
    # As consumers read it of the timestamp, so that it is as new as it was.
    exact = moment(time_within(timestamp / 1000, valid_id(given.get("ce_id")) or ""))
    return now, [("ce_time", format_time(exact))]
