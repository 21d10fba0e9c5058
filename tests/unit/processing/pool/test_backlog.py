from __future__ import annotations

from feedback.contract.record import Record
from processing.pool.backlog import Backlog, backlogs_of
from processing.pool.worker_time import CHUNK_SECONDS, OVERHEAD
from tests.support.lanes import known_costs


def test_what_waits_by_partition_and_for_how_long() -> None:
    def records(partition: int, kind: str | None, n: int) -> list[Record]:
        return [("t", partition, offset, 0, None, b"", [], kind, None) for offset in range(n)]

    found = backlogs_of(
        [*records(0, "quick", 900), *records(0, "slow", 2), *records(1, None, 10)], known_costs()
    )
    assert found.keys() == {("t", 0), ("t", 1)}
    assert found["t", 0][::2] == (902, "slow")
    assert abs(found["t", 0].seconds - 2.09 - 902 * OVERHEAD) < 1e-6
    unknown = 10 * (CHUNK_SECONDS + OVERHEAD)
    assert found["t", 1] == Backlog(10, unknown, "topic:t")
