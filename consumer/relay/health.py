"""Whether a relay lives and is ready: rules without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from feedback.outbox.relay.loop import LoopState
from processing.maintenance.health import HealthCheck, HealthReport

STALE_AFTER: Final = 60.0
"""Seconds without a turn after which a sender's loop counts as stuck: statements, brokers and a
pause together take less."""


class RelayHealth:
    """Alive: each sender's loop turns.

    Ready: the outbox answers, each sender's brokers do, and nobody keeps its shards locked.
    """

    def __init__(
        self, states: Callable[[], Sequence[LoopState]], clock: Callable[[], float]
    ) -> None:
        self._states = states
        self._clock = clock
        self.stopping = False

    def live(self) -> HealthReport:
        """Whether all loops turn."""
        return HealthReport(tuple(self._loop(state) for state in self._states()))

    def ready(self) -> HealthReport:
        """Whether what is added now is sent from here, and an end of it would be written."""
        checks = [HealthCheck("stopping", not self.stopping, "yes" if self.stopping else "no")]
        for state in self._states():
            checks += [
                self._loop(state),
                _service(f"{state.name}: outbox", state.database, counts=True),
                _other(state),
            ]
            if state.kept is not None:
                checks.append(HealthCheck(f"{state.name}: shards", False, state.kept))
        return HealthReport(tuple(checks))

    def _loop(self, state: LoopState) -> HealthCheck:
        age = self._clock() - state.turned
        detail = f"turned {age:.1f} s ago, {state.done} {'sent' if state.sends else 'ended'}"
        return HealthCheck(f"{state.name}: loop", age <= STALE_AFTER, detail)


def _other(state: LoopState) -> HealthCheck:
    """Without statuses rows are sent all the same."""
    if state.sends:
        return _service(f"{state.name}: brokers", state.other, counts=True)
    return _service(f"{state.name}: read", state.other, counts=False)


def _service(name: str, away: str | None, *, counts: bool) -> HealthCheck:
    return HealthCheck(name, away is None, away or "answers", counts)
