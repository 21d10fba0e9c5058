"""What each worker runs at this moment, for operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from typing import Any, Final, Protocol

from feedback.contract.record import HEADERS, TYPE, Record, place_text
from processing.ipc.progress import Running

MOST_SHOWN: Final = 1000
"""Each heartbeat has all of them."""


class ChunkInHand(Protocol):
    """What is needed of a chunk."""

    number: int
    records: list[Record]


def running_requests(
    chunks: Mapping[int, Iterable[ChunkInHand]],
    looks: Mapping[int, Running | None],
    now: float,
    at: datetime,
    seats: Mapping[int, Mapping[int, Running | None]] | None = None,
) -> list[dict[str, Any]]:
    """A row for each request that a worker runs: request_id, type, record, worker, chunk, since.

    A later run of the same id has another chunk. `chunks` are those in each worker's hand, `looks`
    what the workers' slots say, `now` the slots' clock at the time `at`; `since` is RFC 3339. The
    id of a structured event is not known: None.
    What runs in workers' seats comes besides; a batch is left out, as it is no single request. Of
    more than MOST_SHOWN those that have run longest.
    """
    calls = [
        (n, replace(running, index=0))  # a seat has one request, also while nothing blames it
        for n, seen in (seats or {}).items()
        for running in seen.values()
        if running is not None
    ]
    found = list(at_work(chunks, [*looks.items(), *calls]))
    if len(found) > MOST_SHOWN:
        found = nsmallest(MOST_SHOWN, found, key=lambda row: row[1].started)
    return [
        {
            "request_id": request_id(record),
            "type": record[TYPE],
            "record": place_text(record),
            "worker": worker,
            "chunk": running.chunk,
            "since": _text(at - timedelta(seconds=now - running.started)),
        }
        for worker, running, record in found
    ]


def at_work(
    chunks: Mapping[int, Iterable[ChunkInHand]], looks: Iterable[tuple[int, Running | None]]
) -> Iterator[tuple[int, Running, Record]]:
    """Each worker that runs a single request, what its slot says, and the record that it runs."""
    numbered = {n: {chunk.number: chunk for chunk in mine} for n, mine in chunks.items()}
    for worker, running in looks:
        if running is None or running.index is None:
            continue
        chunk = numbered.get(worker, {}).get(running.chunk)
        if chunk is not None and running.index < len(chunk.records):
            yield worker, running, chunk.records[running.index]


def request_id(record: Record) -> str | None:
    """The id in a record's headers, where there is one that can be read."""
    # Of two headers of one name the last one counts, as in the envelope.
    value = dict(record[HEADERS] or ()).get("ce_id")
    return None if value is None else value.decode("utf-8", "replace")


def facts_of(record: Record | None) -> dict[str, Any]:
    """What names a record in a log line."""
    if record is None:
        return {}
    return {"type": record[TYPE], "record": place_text(record), "request_id": request_id(record)}


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
