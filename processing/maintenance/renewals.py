"""Leases that are to be renewed, and whether those of others may be taken to have run out.

What kept leases from being renewed here may have kept everybody from it, as an outage does, or
somebody who has the table locked for longer than they last. Who is the first to write again must
not take for dead what is only late.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from feedback.journal.claims import renew, renew_calls
from feedback.journal.connections import Connection
from processing.ipc.frames import Frame, LeasesRenewed, RenewCalls, RenewClaims
from processing.settings import MaintenanceSettings

SPARED: Final = 15.0
"""Seconds after the journal could not be written in which claims that ran out meanwhile are left to
those who have them: nobody could renew any."""


class Renewals:
    """The thread that takes frames says what is in hand; the database thread renews it."""

    def __init__(self, settings: MaintenanceSettings, tell: Callable[[Frame], None]) -> None:
        """`tell`: the main process, which has workers do it where it hears nothing."""
        self._tell = tell
        self._instance, self._schema = settings.instance, settings.schema
        self._lease = settings.lease
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._claims: list[tuple[str, int]] = []
        self._calls: list[str] = []
        self._spared_until = float("-inf")

    def want(self, frame: RenewClaims | RenewCalls) -> None:
        """These are in hand, in place of what was said before."""
        with self._lock:
            if isinstance(frame, RenewClaims):
                self._claims = frame.claims
            else:
                # Their chunks are in hand: external calls that they made may still run.
                self._calls = frame.tokens

    # Done by the database thread

    def pause(self, _now: float) -> float | None:
        """Seconds until leases are to be renewed; None while none are."""
        with self._lock:
            return 0.0 if self._claims or self._calls else None

    def spare(self, now: float, tried_again_in: float = 0.0) -> None:
        """The journal could not be written, or can be again: whoever has claims may renew them yet.

        `tried_again_in`: seconds until it is known whether it can.
        """
        with self._lock:
            self._spared_until = max(self._spared_until, now + tried_again_in + SPARED)

    def sparing(self, now: float) -> bool:
        """Whether claims that have run out are left to those who have them."""
        with self._lock:
            return bool(self._claims or self._calls) or now < self._spared_until

    def renew(self, connection: Connection) -> None:
        """Extends leases. Raises psycopg.Error where the database is away."""
        with self._lock:
            claims, self._claims = self._claims, []
            calls, self._calls = self._calls, []
        try:
            renew(connection, self._instance, claims, schema=self._schema)
            renew_calls(connection, calls, self._lease, schema=self._schema)
        except BaseException:
            with self._lock:  # as soon as the database is back, unless there is a later word
                self._claims = self._claims or claims
                self._calls = self._calls or calls
            raise
        self._tell(LeasesRenewed())
