"""Parking: requests that an instance has taken and will not start become waiting rows.

Any instance takes them from there at once. An id that has a row already is left: whatever that row
says answers the request, or it is in another copy's hands.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import errors

from feedback.due import notify
from feedback.queries import query

Connection: TypeAlias = psycopg.Connection[Any]

LOCK_TIMEOUT: Final = "100ms"
"""How long a park waits for somebody who is just writing a row of one of its ids."""

_END: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND backend_start = %s::timestamptz"
)
_GONE_WAIT: Final = 0.01


class Parcel(NamedTuple):
    """A request as its waiting row keeps it. `headers` is JSON as rows keep them."""

    id: str
    type: str
    topic: str
    partition: int
    offset: int
    produced_at: datetime
    not_before: datetime | None
    run: int
    """Its starts so far, each of which ended with its worker."""
    crashes: int
    """Those of them that its worker died of."""
    key: bytes | None
    reference: str | None
    payload: bytes | None
    headers: bytes


def park(connection: Connection, parcels: Sequence[Parcel], code: str, *, schema: str) -> set[str]:
    """Writes waiting rows; the ids that have one now by it. Each id may come once.

    What another copy of a request holds up is tried in halves, and left in the end: that copy runs.
    """
    if not parcels:
        return set()
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
            values = {**_columns(parcels), "code": code}
            rows = connection.execute(query("park", schema), values).fetchall()
            if rows:
                notify(connection, schema=schema)
        return {row[0] for row in rows}
    except errors.LockNotAvailable:
        if len(parcels) == 1:
            return set()
        middle = len(parcels) // 2
        first = park(connection, parcels[:middle], code, schema=schema)
        return first | park(connection, parcels[middle:], code, schema=schema)


def _columns(parcels: Sequence[Parcel]) -> dict[str, list[Any]]:
    return {
        "ids": [p.id for p in parcels],
        "types": [p.type for p in parcels],
        "topics": [p.topic for p in parcels],
        "partitions": [p.partition for p in parcels],
        "offsets": [p.offset for p in parcels],
        "produced": [p.produced_at for p in parcels],
        "not_before": [p.not_before for p in parcels],
        "runs": [p.run for p in parcels],
        "crashes": [p.crashes for p in parcels],
        "keys": [p.key for p in parcels],
        "references": [p.reference for p in parcels],
        "payloads": [p.payload for p in parcels],
        "headers": [p.headers.decode() for p in parcels],
    }


def end_backends(
    connection: Connection, backends: Sequence[tuple[int, str]], timeout: float = 5.0
) -> None:
    """Ends sessions of dead workers, (pid, start), and waits until they have gone.

    A COMMIT may still be running there. Raises OperationalError where one does not go.
    """
    end = time.monotonic() + timeout
    for pid, start in dict.fromkeys(map(tuple, backends)):
        while connection.execute(_END, [pid, start]).fetchone() is not None:
            if time.monotonic() > end:
                raise psycopg.OperationalError(f"the backend {pid} does not end")
            time.sleep(_GONE_WAIT)
