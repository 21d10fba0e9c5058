"""Handlers that do nothing but count, without a row and with one: for handoff and others."""

from __future__ import annotations

import contextlib
from typing import Any

from benchmarks.tally import Tally
from processing import App, RegistrationError

app = App()
_tallies: list[Tally] = []


@app.on_worker_start
def count() -> None:
    """A tally of each worker's own."""
    _tallies.append(Tally())


def nothing(_payload: dict[str, Any]) -> None:
    """Nothing, so that only the way is measured."""
    _tallies[0].add()


app.handler("bench.row")(nothing)
app.handler("bench.handoff", effect="none")(nothing)
with contextlib.suppress(RegistrationError):  # another commit may not know the option
    app.handler("bench.untold", effect="none", done_status=False)(nothing)
