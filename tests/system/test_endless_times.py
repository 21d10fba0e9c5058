"""Times beyond the calendar, in an app and in settings: they are bounded, and refuse nothing."""

from __future__ import annotations

import pytest

from tests.support.endless_app import SECONDS
from tests.support.service import WAIT, Bench

LONGEST = "315619200"
"""Ten years, which is the most of each setting."""
SETTINGS = (
    "REQUEST_TIMEOUT", "DATABASE_LOCK_TIMEOUT", "DATABASE_STATEMENT_TIMEOUT", "LEASE",
    "SWEEP_INTERVAL", "WORKER_START_TIMEOUT", "GRACE",
)  # fmt: skip
WAITING = ("shaky", "pure", "busy")
DONE = ("order", "call", "acall")


@pytest.mark.long
def test_times_beyond_the_calendar_are_bounded(bench: Bench) -> None:
    instance = bench.start(
        ONCEPOOL_APP="tests.support.endless_app:app",
        **{f"ONCEPOOL_{name}": LONGEST for name in SETTINGS},
    )
    waiting = [bench.client.submit(kind, None) for kind in WAITING]
    first, last = (bench.client.submit("recount", None) for _ in range(2))
    done = [bench.client.submit(kind, None, timeout=SECONDS / 2) for kind in DONE]
    for name in done:
        assert bench.client.wait(name, WAIT).state == "done", instance.log
    for name in (*waiting, last):
        assert bench.seen(name)[0] == "waiting", instance.log
    assert bench.client.wait(first, WAIT).state == "superseded"
    assert bench.client.wait(done[0], SECONDS).state == "done"
    assert bench.client.call("order", None, timeout=SECONDS).state == "done"
    bench.client.flush(SECONDS)
    assert instance.stop() == 0
