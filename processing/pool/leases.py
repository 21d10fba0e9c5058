"""Whose leases have to be renewed: claimed rows, calls outside that may run, suspects. Pure."""

from __future__ import annotations

import math
from itertools import chain
from typing import Final

from processing.ipc.frames import RenewCalls, RenewClaims, RenewLeases
from processing.pool.actions import Action, Send, Tell
from processing.pool.demand import Demand
from processing.pool.lanes import Lanes
from processing.pool.workers import Workers
from processing.settings import PoolSettings

RENEW_EVERY: Final = 15.0
"""Seconds between two renewals of a row's lease, and the longest between two of a call's."""
PART_OF_LEASE: Final = 1 / 3
"""After so much of its lease a call's is renewed."""
ANSWERED_IN: Final = 5.0
"""Seconds that the maintenance process has at most to say that leases are renewed."""


class Leases:
    """The main process has them renewed, as it knows what is in hand.

    By the maintenance process. Where that does not say in time that it has done so, as it has died,
    hangs, or has lost its session while the server lets nobody new in, workers are asked as well.
    """

    def __init__(self, settings: PoolSettings, wants: Demand, crew: Workers, lanes: Lanes) -> None:
        self._instance = settings.instance
        self._calls_every = min(RENEW_EVERY, settings.lease * PART_OF_LEASE)
        self._wants = wants
        self._crew = crew
        self._lanes = lanes
        self._rows_at = self._calls_at = 0.0
        self._answered_in = min(ANSWERED_IN, self._calls_every / 2)
        self._late_at = math.inf
        """When workers are asked, unless the maintenance process has answered."""

    def due(self, now: float) -> list[Action]:
        """What to have renewed now."""
        actions: list[Action] = []
        if now >= self._rows_at:
            self._rows_at = now + RENEW_EVERY
            actions += self._rows()
        if now >= self._calls_at:
            self._calls_at = now + self._calls_every
            actions += self._calls()
        if actions:
            self._late_at = min(self._late_at, now + self._answered_in)
        elif now >= self._late_at:
            self._late_at = math.inf
            actions += self._by_workers()
        return actions

    def renewed(self) -> None:
        """The maintenance process has done so."""
        self._late_at = math.inf

    def all(self, *, alone: bool) -> list[Action]:
        """Everything, whenever it was renewed last; `alone`: no other rows are in hand."""
        return [*self._rows(self._wants.order if alone else 0), *self._calls()]

    def _rows(self, all_to: int = 0) -> list[Action]:
        if not (self._wants.hand or all_to):
            return []
        return [Tell(RenewClaims(self._wants.pairs, all_to))]

    def _calls(self) -> list[Action]:
        tokens = self._tokens
        return [Tell(RenewCalls(tokens))] if tokens else []

    @property
    def _tokens(self) -> list[str]:
        """Every chunk that workers have may have made calls, and so may one that is suspected.

        A suspect's claim is its dead worker's, and it may have to wait for many others.
        """
        chunks = self._crew.chunks
        tokens = dict.fromkeys(chunk.token(self._instance) for chunk in chunks)
        suspects = (chunk.suspect for chunk in chunks if chunk.suspect is not None)
        for suspect in chain(suspects, self._lanes.suspicions()):
            tokens.update(dict.fromkeys(suspect.tokens))
        return list(tokens)

    def _by_workers(self) -> list[Action]:
        """All that may have a session, as any of them may need it itself for long."""
        frame = RenewLeases(self._wants.pairs, self._tokens)
        if not (frame.claims or frame.calls) or not self._crew.database_up:
            return []
        workers = self._crew.all.values()
        return [Send(w.number, frame) for w in workers if w.ready and not w.cut_off]
