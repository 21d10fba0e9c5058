"""What became of requests that are moved, whoever moves them; of what breaks off, so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumer.admin.cancelling import Cancelled
from consumer.admin.journal import NOTHING_DONE
from feedback.contract.states import FINAL
from feedback.errors import OncepoolError
from feedback.operations.explanations import Refusal
from feedback.operations.request_reads import Row


@dataclass(slots=True)
class MoveOutcome:
    """What was moved, and what was not and why.

    First plan(), then part by part begin() and done(). Where those that run are to end, then
    end_those_that_run(), withdrew() for what waits by then, and ended(). At an error broke_off().
    """

    rows: list[Row] = field(default_factory=list)
    """What was moved."""
    refused: list[Refusal] = field(default_factory=list)
    late: list[Refusal] = field(default_factory=list)
    """Those that run, and of which nothing was heard in time."""
    problem: str = ""
    """Why it broke off, where it did."""
    unsure: list[str] = field(default_factory=list)
    """Those that it is at: where it broke off they may have been moved, or not, unless it is known
    that they were not."""
    _whole: bool = field(default=False, repr=False)
    _left: dict[str, None] = field(default_factory=dict, repr=False)
    _may_run: list[Refusal] = field(default_factory=list, repr=False)
    """Those of the refused that are being ended."""

    @property
    def untried(self) -> list[str]:
        """Those that are to be moved, and that it has not come to, or of which nothing stands."""
        return list(self._left)

    def plan(self, names: Iterable[str]) -> None:
        """These are to be moved, too."""
        self._left |= dict.fromkeys(names)

    def begin(self, batch: Sequence[Any], *, whole: bool = False) -> None:
        """These are being moved now. `whole`: all in one transaction, and nowhere else."""
        self.unsure, self._whole = [*map(str, batch)], whole
        for name in self.unsure:
            self._left.pop(name, None)

    def goes_out(self) -> None:
        """What is being moved leaves the transaction: it may have been moved whatever comes."""
        self._whole = False

    def done(self, rows: Sequence[Row], refused: Sequence[Refusal]) -> None:
        """What was being moved has its answer."""
        self.rows += rows
        self.refused += refused
        self.unsure = []

    def broke_off(self, error: OncepoolError) -> None:
        """It came to no end. What the database has refused was left as it was."""
        self.problem = str(error)
        if self._whole and isinstance(error, NOTHING_DONE):
            self._left = dict.fromkeys(self.unsure) | self._left
            self.unsure = []

    def end_those_that_run(self) -> list[Refusal]:
        """Of the refused those that may run: they are being ended now, and refused no more."""
        self._may_run = [one for one in self.refused if one.state not in FINAL]
        self.refused = [one for one in self.refused if one.state in FINAL]
        self.unsure, self._whole = [one.id for one in self._may_run], False
        return self._may_run

    def withdrew(self, rows: Sequence[Row]) -> None:
        """These waited by then, and were moved, whatever becomes of the others."""
        known = {row["id"] for row in self.rows}
        self.rows += [row for row in rows if row["id"] not in known]
        moved = {row["id"] for row in rows}
        self.unsure = [one for one in self.unsure if one not in moved]

    def ended(self, found: Cancelled) -> None:
        """What was being ended has its answer; what did not run is left as it is.

        Where nobody could be asked what runs, none of them was tried.
        """
        self.withdrew(found.rows)
        left = set(self.unsure) - {one.id for one in (*found.ended, *found.late)}
        if found.problem:
            self.problem = found.problem
            self._left |= dict.fromkeys(one.id for one in self._may_run if one.id in left)
            left = set()
        self.refused += [one for one in self._may_run if one.id in left] + found.ended
        self.late += found.late
        self.unsure, self._may_run = [], []
