"""Times as SQL can count with them, whoever wrote them."""

from __future__ import annotations

from feedback.contract.times import EARLIEST, LATEST


def nearest(column: str) -> str:
    """SQL: a time, or the nearest one from EARLIEST to LATEST; NULL stays NULL.

    For sums and differences, which the database refuses of infinities. What is only read the
    connection makes safe (see postgres_times.py).
    """
    bounded = f"least(greatest({column}, '{EARLIEST.isoformat()}'), '{LATEST.isoformat()}')"
    return f"CASE WHEN {column} IS NOT NULL THEN {bounded} END"  # greatest() leaves NULLs out
