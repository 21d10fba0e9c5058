"""Whether this instance lives and is ready: rules without I/O, and what the endpoints show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class HealthCheck(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    counts: bool = True
    """False: only reported, it decides nothing."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What an endpoint says."""

    checks: tuple[HealthCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that counts is well."""
        return all(check.ok for check in self.checks if check.counts)

    def as_text(self) -> str:
        """One line a check, as ``[+] main: turned 0.4 s ago``."""
        lines = [
            f"[{'+' if check.ok else '-' if check.counts else '!'}] {check.name}: {check.detail}"
            for check in self.checks
        ]
        return "\n".join([*lines, "ok" if self.ok else "failed"]) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The same as an object."""
        return {"ok": self.ok, "checks": [check._asdict() for check in self.checks]}


class Health:
    """What the process knows, and the rules. Any thread may tell and ask.

    Alive: the main process was heard within `stale_after` seconds and its own loop turns.
    Ready: alive, a member of the group (with or without partitions, paused or idle), its topics
    exist, not stopping, the database is up, workers reach it, and nobody of the group is seen with
    another journal. Only reported are Redis, as
    requests run without it, partitions that are not read yet, as the others are, and brokers: they
    are away for all instances, and one that is not ready would help nobody.
    """

    def __init__(self, stale_after: float, clock: Callable[[], float]) -> None:
        self._stale_after = stale_after
        self._clock = clock
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._facts: dict[str, Any] = {}
        self._heard = self._turned = clock()
        self._database = (False, "not tried yet")
        self._redis = (False, "not tried yet")
        self._journal = ""
        self._other_journals = ""

    def heartbeat(self, facts: Mapping[str, Any]) -> None:
        """The main process's loop turned and says this of itself."""
        with self._lock:
            self._facts = dict(facts)
            self._heard = self._clock()

    def turn(self) -> None:
        """The loop of this process turned."""
        with self._lock:
            self._turned = self._clock()

    def database(self, up: bool, detail: str) -> None:
        """How the database was found."""
        with self._lock:
            self._database = (up, detail)

    def redis(self, up: bool, detail: str) -> None:
        """How Redis was found."""
        with self._lock:
            self._redis = (up, detail)

    def uses_journal(self, journal: str) -> None:
        """Which journal this instance uses."""
        with self._lock:
            self._journal = journal

    def other_journals(self, others: str) -> None:
        """Which instances of its group use another one, in words; empty: none that is known."""
        with self._lock:
            self._other_journals = others

    @property
    def journal(self) -> str:
        """Which journal this instance uses; empty as long as that is not known."""
        with self._lock:
            return self._journal

    @property
    def facts(self) -> dict[str, Any]:
        """What the main process said last."""
        with self._lock:
            return dict(self._facts)

    @property
    def stale(self) -> bool:
        """The main process was not heard for so long that it does not count as alive."""
        return self.age > self._stale_after

    @property
    def age(self) -> float:
        """Seconds since the main process was heard."""
        with self._lock:
            return self._clock() - self._heard

    def live(self) -> HealthReport:
        """Whether both loops turn."""
        with self._lock:
            return HealthReport(self._loops())

    def ready(self) -> HealthReport:
        """Whether requests that are sent now will be run here or by the rest of the group."""
        with self._lock:
            joined = bool(self._facts.get("joined"))
            assigned = self._facts.get("assigned", 0)
            group = f"joined, {assigned} partition(s)" if joined else "not joined yet"
            stopping = bool(self._facts.get("stopping"))
            return HealthReport(
                (
                    *self._loops(),
                    HealthCheck("group", joined, group),
                    _brokers(self._facts),
                    _topics(self._facts.get("missing_topics", ())),
                    _partitions(
                        self._facts.get("partitions_without_start", 0),
                        self._facts.get("without_start", ()),
                    ),
                    _workers(self._facts),
                    HealthCheck("stopping", not stopping, "yes" if stopping else "no"),
                    HealthCheck("database", *self._database),
                    _journal(self._other_journals),
                    HealthCheck("redis", *self._redis, counts=False),
                )
            )

    def _loops(self) -> tuple[HealthCheck, ...]:
        now = self._clock()
        ages = (("main", now - self._heard), ("maintenance", now - self._turned))
        return tuple(
            HealthCheck(name, age <= self._stale_after, f"turned {age:.1f} s ago")
            for name, age in ages
        )


def brokers_up(facts: Mapping[str, Any]) -> bool | None:
    """What the main process's Kafka client has heard of brokers; None: nothing yet, nor sought."""
    if facts.get("brokers_away_for") is not None:
        return False
    heard = facts.get("joined") or facts.get("missing_topics") is not None
    return True if heard else None


def _brokers(facts: Mapping[str, Any]) -> HealthCheck:
    up = brokers_up(facts)
    if up is None:
        return HealthCheck("brokers", ok=False, detail="not heard from yet", counts=False)
    if up:
        return HealthCheck("brokers", ok=True, detail="answer", counts=False)
    detail = f"all are down, none was heard for {facts['brokers_away_for']:.0f} s"
    return HealthCheck("brokers", ok=False, detail=detail, counts=False)


def _journal(others: str) -> HealthCheck:
    if not others:
        return HealthCheck("journal", ok=True, detail="no instance of the group uses another one")
    return HealthCheck(
        "journal", ok=False, detail=f"of the group, others use another one: {others}"
    )


def _workers(facts: Mapping[str, Any]) -> HealthCheck:
    if not facts.get("workers_start", True):
        return HealthCheck("workers", ok=False, detail="none can start")
    if not facts.get("workers_connect", True):
        # The session of this process may stand where no other one can be had.
        return HealthCheck("workers", ok=False, detail="none reaches the database")
    return HealthCheck("workers", ok=True, detail="they can start")


def _partitions(n: int, named: Sequence[str]) -> HealthCheck:
    """One that has no leader says nothing of the others, which are read: it decides nothing."""
    if not n:
        return HealthCheck("partitions", ok=True, detail="all are read", counts=False)
    names = ", ".join(named) + (", ..." if n > len(named) else "")
    why = "no leader, or their committed offset could not be read"
    return HealthCheck("partitions", ok=False, detail=f"{n} not read yet ({why}): {names}",
                       counts=False)  # fmt: skip


def _topics(missing: Sequence[str] | None) -> HealthCheck:
    if missing is None:
        return HealthCheck("topics", ok=False, detail="not looked at yet")
    if missing:
        names = ", ".join(missing)
        return HealthCheck("topics", ok=False, detail=f"missing: {names}")
    return HealthCheck("topics", ok=True, detail="all there")
