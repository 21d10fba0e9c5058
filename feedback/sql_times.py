"""Times as SQL can count with them, whoever wrote them."""

from __future__ import annotations

from feedback.contract.times import EARLIEST, LATEST


def nearest(column: str) -> str:
    """SQL: a time that is not NULL, or the nearest one from EARLIEST to LATEST.

    For sums and differences, which the database refuses of infinities. What is only read the
    connection makes safe (see postgres_times.py).
    """
    return f"least(greatest({column}, '{EARLIEST.isoformat()}'), '{LATEST.isoformat()}')"
