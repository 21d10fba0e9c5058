"""Whose leases have to be renewed: claimed rows, calls outside that may run, suspects. Pure."""

from __future__ import annotations

from itertools import chain
from typing import Final

from processing.ipc.frames import RenewCalls, RenewClaims
from processing.pool.actions import Action, Tell
from processing.pool.demand import Demand
from processing.pool.lanes import Lanes
from processing.pool.workers import Workers
from processing.settings import PoolSettings

RENEW_EVERY: Final = 15.0
"""Seconds between two renewals of a row's lease, and the longest between two of a call's."""
PART_OF_LEASE: Final = 1 / 3
"""After so much of its lease a call's is renewed."""


class Leases:
    """The main process has them renewed, as it knows what is in hand."""

    def __init__(self, settings: PoolSettings, wants: Demand, crew: Workers, lanes: Lanes) -> None:
        self._instance = settings.instance
        self._calls_every = min(RENEW_EVERY, settings.lease * PART_OF_LEASE)
        self._wants = wants
        self._crew = crew
        self._lanes = lanes
        self._rows_at = self._calls_at = 0.0

    def due(self, now: float) -> list[Action]:
        """What to have renewed now."""
        actions: list[Action] = []
        if now >= self._rows_at:
            self._rows_at = now + RENEW_EVERY
            actions += self._rows()
        if now >= self._calls_at:
            self._calls_at = now + self._calls_every
            actions += self._calls()
        return actions

    def all(self, *, alone: bool) -> list[Action]:
        """Everything, whenever it was renewed last; `alone`: no other rows are in hand."""
        return [*self._rows(self._wants.order if alone else 0), *self._calls()]

    def _rows(self, all_to: int = 0) -> list[Action]:
        if not (self._wants.hand or all_to):
            return []
        return [Tell(RenewClaims(self._wants.pairs, all_to))]

    def _calls(self) -> list[Action]:
        """Every chunk that workers have may have made some, and so may one that is suspected.

        A suspect's claim is its dead worker's, and it may have to wait for many others.
        """
        chunks = self._crew.chunks
        tokens = dict.fromkeys(chunk.token(self._instance) for chunk in chunks)
        suspects = (chunk.suspect for chunk in chunks if chunk.suspect is not None)
        for suspect in chain(suspects, self._lanes.suspicions()):
            tokens.update(dict.fromkeys(suspect.tokens))
        return [Tell(RenewCalls(list(tokens)))] if tokens else []
