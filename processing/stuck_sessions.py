"""What is said of a dead worker's database session that does not end, and how often."""

from __future__ import annotations

from typing import Final

ADVICE: Final = (
    "find on the database's machine what that server process waits for"
    " (pg_stat_activity.wait_event; state D in ps: a disk or network file system) and end that"
    " wait; if nothing else helps, restart PostgreSQL"
)
NAMED: Final = 5
"""Requests that a log line names."""
SAY_AGAIN: Final = 60.0
"""Seconds between two log lines about one session."""
