"""Handlers that take known times, and count them: for cpu_bound, io_bound and beside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks.busy import PIECES, burn_mixed
from benchmarks.tally import Tally
from processing import App

app = App()
_tallies: list[Tally] = []
_numbers = count()
"""Of what this process does: offsets have gaps, and their sum would be nobody's."""


@app.on_worker_start
def begin() -> None:
    """A tally of each worker's own."""
    _tallies.append(Tally(step=1))


def counted(piece: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """A handler that does a piece of work."""

    def run(_payload: dict[str, Any]) -> None:
        piece()
        _tallies[0].add()

    return run


for name, piece in PIECES.items():
    app.handler(name)(counted(piece))
app.handler("bench.cpu.capped", max_at_once=1)(counted(PIECES["bench.cpu.1000"]))


@app.handler("bench.cpu.mixed")
def mixed(_payload: dict[str, Any]) -> None:
    """1, 10 or 100 ms, counted in milliseconds."""
    _tallies[0].add(each=burn_mixed(next(_numbers)))
