"""What the log says of workers that come to an end, of limits and of the database."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from processing.ipc.frames import UNUSABLE, LimitsFound
from processing.logs import BoundLogger
from processing.pool.actions import (
    Action,
    Died,
    ForLog,
    Replaced,
    Send,
    Signal,
    StartsPaused,
    Unended,
)
from processing.pool.at_work import AtWork
from processing.pool.running import facts_of, request_id
from processing.stuck_sessions import ADVICE, NAMED


class PoolLog:
    """Lines that depend on what was said before."""

    def __init__(self, log: BoundLogger) -> None:
        self._log = log
        self._kills: dict[int, str] = {}
        """Workers that got SIGKILL from here, and why: their deaths are no news."""
        self._limits: Any = (None, {}, [])
        """What operators have set."""
        self._database_seen = False

    def signalled(self, action: Signal, at_work: AtWork) -> None:
        """A worker is sent a signal."""
        number, sent, reason = action.worker, action.number, action.reason
        if not action.again:
            name = signal.Signals(sent).name
            meant = at_work.meant_by(action)
            # One that runs nothing is only asked to end.
            log = self._log.warning if meant or sent == signal.SIGKILL else self._log.info
            log("signalling a worker", signal=name, why=reason, **{"worker": number, **meant})
        if sent == signal.SIGKILL:
            self._kills[number] = reason

    def tell(self, action: ForLog) -> None:
        """What the pool wants to be known."""
        match action:
            case Replaced(worker, reason):
                self._log.info("replacing a worker", worker=worker, why=reason)
            case StartsPaused(seconds, deaths, ready):
                self._log.warning(
                    "workers died one after the other: none is started for a while",
                    seconds=seconds, deaths=deaths, ready=ready,
                )  # fmt: skip
            case Unended():
                self.unended(action)
            case Died():
                self.died(action)

    def unended(self, stays: Unended) -> None:
        """A dead worker's session is still there."""
        pid, start = stays.backend
        self._log.error(
            "a dead worker's database session does not end: its requests, and what is behind them"
            " in their order, wait for it, as it may commit yet; all others run",
            backend_pid=pid, backend_start=start, worker=stays.worker, requests=len(stays.waiting),
            first=[request_id(record) for record in stays.waiting[:NAMED]], advice=ADVICE,
        )  # fmt: skip

    def died(self, died: Died) -> None:
        """A worker died with work in hand."""
        facts = {"worker": died.worker, "suspects": died.suspects, **facts_of(died.culprit)}
        killed = self._kills.get(died.worker)
        if killed is None:
            self._log.error("worker died", cause=died.cause, **facts)
        else:
            self._log.warning("worker was killed", why=killed, **facts)

    def cancelling(self, name: str, reason: str, actions: Sequence[Action]) -> None:
        """A request is asked to end."""
        for action in actions:
            if isinstance(action, Send):
                self._log.warning("cancelling a request", request_id=name, worker=action.worker,
                                  why=reason)  # fmt: skip

    def gone(self, number: int) -> None:
        """A worker's end is over."""
        self._kills.pop(number, None)

    def limits(self, found: LimitsFound) -> None:
        """These limits hold."""
        settings = {kind: bounds[:2] for kind, bounds in found.types.items()}
        limits = (found.workers, settings, found.paused)
        # At a start nothing is limited. Shares move with the work: that is no news for people.
        log = self._log.debug if limits == self._limits else self._log.info
        self._limits = limits
        names = ("each_instance", "total", "here_now", "here_soon")
        types = {
            kind: {name: n for name, n in zip(names, bounds, strict=True) if n is not None}
            for kind, bounds in found.types.items()
        }
        log("limits", workers=found.workers, types=types, paused=found.paused)

    def journal_missing(self, detail: str) -> None:
        """Its tables are gone, or too old, while there is work: they may be put back."""
        self._log.error(f"{UNUSABLE}: it is looked at again", detail=detail)

    def connection_lost(self, worker: int) -> None:
        """A worker's is gone: that is an outage only where the probe says so."""
        self._log.warning("a worker lost its connection: the database is probed", worker=worker)

    def database(self, *, before: bool, up: bool) -> None:
        """Whether the database can be reached, and whether it could before."""
        if up and not before:
            again = " again" if self._database_seen else ""
            self._log.info(f"database reached{again}: intake opens")
        elif not up and before:
            self._log.error("database away: intake stops until it is reached again")
        self._database_seen = self._database_seen or up or before
