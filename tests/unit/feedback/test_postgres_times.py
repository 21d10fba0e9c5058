"""Times of PostgreSQL, read as the nearest ones that can be counted with."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.types.datetime import TimestamptzLoader

from feedback import postgres_times
from feedback.contract.times import EARLIEST, LATEST
from feedback.postgres_times import NearestTime

OID = psycopg.adapters.types["timestamptz"].oid


@pytest.mark.parametrize(
    "text, time",
    [
        ("-infinity", EARLIEST), ("4713-01-01 00:00:00+00 BC", EARLIEST),
        ("10000-01-01 00:00:00+00 BC", EARLIEST), ("0001-01-01 00:00:00+14", EARLIEST),
        ("0001-01-01 00:00:00-14", EARLIEST), ("1969-12-31 23:59:59+00", EARLIEST),
        ("1970-01-01 00:00:00+01", EARLIEST),
        ("1970-01-01 00:00:01+00", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("2026-11-23 10:00:00.5+02", datetime(2026, 11, 23, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("9999-12-29 23:59:59+00", datetime(9999, 12, 29, 23, 59, 59, tzinfo=UTC)),
        ("9999-12-30 00:00:00-01", LATEST), ("9999-12-31 23:59:59-14", LATEST),
        ("10000-01-01 00:00:00+00", LATEST), ("294276-12-31 23:59:59+00", LATEST),
        ("infinity", LATEST),
    ],
)  # fmt: skip
def test_any_time_is_read_as_one_that_can_be_counted_with(
    text: str, time: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NearestTime(OID).load(text.encode()) == time
    monkeypatch.setattr(postgres_times, "_PSYCOPGS", TimestamptzLoader)
    assert NearestTime(OID).load(text.encode()) == time, "without psycopg's C"
