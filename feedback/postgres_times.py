"""Times of PostgreSQL as Python can hold them, and count with them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import abc, postgres, pq
from psycopg.adapt import AdaptersMap, Loader
from psycopg.types.datetime import TimestamptzLoader

from feedback.contract.times import EARLIEST, LATEST

_TYPE: Final = "timestamptz"


def _fastest() -> type[abc.Loader]:
    """The loader that psycopg has, in C where there is one, whatever a process has registered."""
    own = AdaptersMap(types=postgres.types)
    own.register_loader(_TYPE, TimestamptzLoader)
    oid = postgres.types[_TYPE].oid
    return own.get_loader(oid, pq.Format.TEXT) or TimestamptzLoader


_PSYCOPGS: Final = _fastest()


class NearestTime(Loader):
    """Reads a time as the nearest one from EARLIEST to LATEST.

    PostgreSQL has infinities, years before our era and beyond 9999; psycopg refuses those, and with
    them all that a statement has found: one row that others wrote would stop all its neighbours.
    """

    def __init__(self, oid: int, context: abc.AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._loader = _PSYCOPGS(oid, context)

    def load(self, data: abc.Buffer) -> datetime:
        """The time of its text in ISO form."""
        try:
            time: datetime = self._loader.load(data)
        except psycopg.DataError:
            text = bytes(data)
            early = text.startswith((b"-", b"0")) or text.endswith(b"BC")
            return EARLIEST if early else LATEST
        # To compare the whole takes as long as all else.
        if EARLIEST.year < time.year < LATEST.year:
            return time
        return min(max(time, EARLIEST), LATEST)


class TimesCursor(psycopg.Cursor[Any]):
    """A cursor that reads times so; those that handlers get read them as psycopg does."""

    def __init__(self, connection: psycopg.Connection[Any], **options: Any) -> None:
        super().__init__(connection, **options)
        self.adapters.register_loader(_TYPE, NearestTime)
