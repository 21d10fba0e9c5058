"""Two versions of an app in one group: rows of a type that one of them knows are left to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

COUNT = 30


@pytest.mark.long
def test_an_older_version_that_finds_nobody_in_redis_takes_nothing_of_what_the_newer_one_runs(
    bench: Bench, tmp_path: Path
) -> None:
    """It has few of them in hand, so all that time some are due and not claimed."""
    newer = bench.start(ONCEPOOL_WORKERS="1", ONCEPOOL_MAX_IN_HAND="10")
    end = tmp_path / "end"
    payload = {"table": bench.table, "seconds": 1, "until": str(end)}
    sent = {bench.client.submit("paced", payload, delay=1) for _ in range(COUNT)}
    eventually(lambda: bench.states().get("waiting", 0) > COUNT // 2 and bench.done(), WAIT)
    # Under another prefix it finds nobody registered, as where Redis has lost all of it.
    older = bench.start(
        ONCEPOOL_APP="tests.support.steps_app:app", ONCEPOOL_REDIS_PREFIX="nobody", wait=False
    )
    own = bench.client.submit("sum", {"numbers": [1], "seconds": 0})
    ran = f"SELECT run FROM {bench.schema}.requests WHERE id = %s"
    eventually(lambda: bench.query(ran, own), WAIT)
    eventually(lambda: not bench.query(ran, own), WAIT, lambda: older.log)
    end.touch()
    eventually(lambda: bench.done() == COUNT, WAIT, lambda: f"{bench.states()}\n{older.log}")
    bench.check_books(sent)
    assert bench.query(f"SELECT count(*) FROM {bench.schema}.requests WHERE run > 1") == [(0,)]
    assert "no handler of this type here" not in older.log
    assert [one.stop() for one in (older, newer)] == [0, 0]
