"""A Redis of statuses: they come late, in any order, or never; it is flushed, or restored.

Which status replaces which is the product's own rule (`replacement`). Each one that is to stand is
held against the journal: it must have been true once, and a final one must be true.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

from feedback.contract.states import FINAL, State
from feedback.status.replacement import replacement
from feedback.status.status import StatusWrite
from tests.model.pool_rules import Violation
from tests.model.sim_journal import Journal


class Redis:
    """What stands, and what is on its way."""

    def __init__(self, chance: random.Random, count: Callable[[str], None]) -> None:
        self._random = chance
        self._count = count
        self.journal: Journal
        """What statuses are held against."""
        self.faults = True
        self.away = False
        self.values: dict[str, bytes] = {}
        self.late: list[tuple[int, StatusWrite]] = []
        """With the number of the instance that has to write it."""
        self.missed: set[str] = set()
        """Ids of which a status was lost, or stands again from before."""
        self._kept: dict[str, bytes] = {}

    # Writing

    def put(self, number: int, write: StatusWrite) -> None:
        """An instance has a status to write."""
        draw = self._random.random() if self.faults else 1.0
        if draw < 0.02:
            self._lose(write.id)
        elif draw < 0.2:
            self.late.append((number, write))
        else:
            self.write(write)

    def write(self, write: StatusWrite) -> None:
        """One arrives."""
        if self.away:
            self._lose(write.id)
            return
        standing = self.values.get(write.id)
        value = replacement(standing, write)
        if value is not None:
            self._check(write.id, standing, value)
            self.values[write.id] = value

    def read(self, name: str) -> bytes | None:
        """What stands."""
        return self.values.get(name)

    def _lose(self, name: str) -> None:
        self._count("a status is lost")
        self.missed.add(name)

    def _check(self, name: str, standing: bytes | None, value: bytes) -> None:
        """It says what the journal has said, and nothing else where that was for good."""
        says = orjson.loads(value)
        state, run = says["state"], _run_of(says)
        if standing is not None and standing[11:12] == b"9":
            was = orjson.loads(standing)["state"]
            if was != state:
                raise Violation(f"the status of {name} was {was} and is {state}")
        if state == State.ACCEPTED or says.get("journaled") is False:
            return  # of which the journal says nothing
        row, said = self.journal.rows.get(name), self.journal.said
        if (name, state, run) not in said:
            raise Violation(f"the status of {name} is {state}, run {run}, and never was: {row}")
        stood = None if standing is None else _word_of(name, standing)
        if stood in said and said[stood] > said[name, state, run]:
            raise Violation(
                f"the status of {name} was {stood[1:]} and is {state}, run {run}, again"
            )
        if state in FINAL and (row is None or row.state != state):
            raise Violation(f"the status of {name} is {state}, the journal says {row}")

    # What happens to it

    def arrive(self, most: int) -> None:
        """Some of what is on its way arrives, in any order."""
        for _ in range(min(most, len(self.late))):
            self.write(self.late.pop(int(self._random.random() * len(self.late)))[1])

    def gone(self, number: int, share: float) -> None:
        """A process of this instance is gone, and with it some of what it had to write."""
        if not self.late:
            return
        left = []
        for who, write in self.late:
            if who == number and self._random.random() < share:
                self._lose(write.id)
            else:
                left.append((who, write))
        self.late = left

    def strike(self) -> None:
        """A fault of its own."""
        draw = self._random.random()
        if draw < 0.25:
            self._count("Redis is flushed")
            self.missed.update(self.values)
            self.values.clear()
        elif draw < 0.5:
            self._kept = dict(self.values)
        elif draw < 0.75:
            self._count("Redis is restored from before")
            self.missed.update(self.values, self._kept)
            self.values = dict(self._kept)
        else:
            self.away = not self.away
            if self.away:
                self._count("Redis is away")

    def calm(self) -> None:
        """Nothing of that happens any more."""
        self.faults = self.away = False
        self.arrive(len(self.late))

    def check(self) -> None:
        """Of whom no status was lost the last one stands."""
        for name, row in self.journal.rows.items():
            value = self.values.get(name)
            state = None if value is None else orjson.loads(value)["state"]
            if state != row.state and name not in self.missed:
                raise Violation(f"the status of {name} is {state}, the journal says {row.state}")


def _run_of(says: dict[str, Any]) -> int:
    return int(says["v"][:5])


def _word_of(name: str, value: bytes) -> tuple[str, str, int] | None:
    """What a status says that the journal has said; None where no row stands behind it."""
    says = orjson.loads(value)
    return None if says.get("journaled") is False else (name, says["state"], _run_of(says))
