"""What became of a request, line by line. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

TRACEBACKS: Final = 20
"""Runs whose tracebacks are shown, the latest: those of one request are often alike."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class TimelineEntry(NamedTuple):
    """Something that happened."""

    at: datetime | None
    what: str
    state: str = ""
    """The state, or the code, that came of it."""
    run: int | None = None
    seconds: float | None = None
    """How long it took."""
    said: str = ""
    """In one line: by whom, and why."""
    error: str = ""
    traceback: str = ""


def timeline(row: dict[str, Any], now: datetime) -> list[TimelineEntry]:
    """All that the journal knows of it, in the order of time; `row` is as show_request has it."""
    lines = [
        TimelineEntry(row["produced_at"], _came(row)),
        TimelineEntry(row["created_at"], "written into the journal"),
    ]
    shown = {attempt["run"] for attempt in row["attempts"][-TRACEBACKS:]}
    for attempt in row["attempts"]:
        took = (attempt["ended_at"] - attempt["started_at"]).total_seconds()
        lines.append(
            TimelineEntry(attempt["ended_at"], "run failed", attempt["code"], attempt["run"],
                          max(0.0, took), error=attempt["error"] or "",
                          traceback=(attempt["traceback"] or "") if attempt["run"] in shown else "")
        )  # fmt: skip
    for move in row["transitions"]:
        said = f"by {move['who']}" + (f": {move['why']}" if move["why"] else "")
        lines.append(
            TimelineEntry(move["at"], f"{move['action']}, was {move['from_state']}",
                          move["to_state"], move["run"], said=said)
        )  # fmt: skip
    lines.append(_now(row, now))
    return sorted(lines, key=lambda line: line.at or _EARLIEST)


def _came(row: dict[str, Any]) -> str:
    match origin(row):
        case "producer":
            return "sent by its producer"
        case "request":
            return "asked for by another request"
        case "schedule":
            return "due by its schedule"


def origin(row: dict[str, Any]) -> Literal["producer", "request", "schedule"]:
    """Who asked for it; rows of earlier versions do not name the request that did."""
    if row["partition"] >= 0:
        return "producer"
    return "request" if row["asked_by"] or row["topic"] else "schedule"


def _now(row: dict[str, Any], now: datetime) -> TimelineEntry:
    """How it stands."""
    ended = row["finished_at"]
    told = {attempt["run"] for attempt in row["attempts"]}
    error = row["error"] if row["run"] not in told else ""
    said = row["reason"] or ""
    if row["state"] == "waiting" and row["due_at"] is not None:
        said = f"due at {row['due_at'].astimezone(UTC):%Y-%m-%d %H:%M:%S}; {said}".rstrip("; ")
    if row["superseded_by"]:
        said = f"in favour of {row['superseded_by']}; {said}".rstrip("; ")
    what = "now" if ended is None else "ended"
    return TimelineEntry(ended or now, what, f"{row['state']} / {row['code']}", row["run"],
                         said=said, error=error or "")  # fmt: skip
