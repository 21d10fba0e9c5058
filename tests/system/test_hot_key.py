"""One key that is hot and slow, on the real service."""

from __future__ import annotations

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

PARTITIONS = 4
BOUND, SECONDS = 60, 0.5
FIRST, MORE, QUICK = 48, 40, 80


def test_a_hot_slow_key_leaves_room_for_other_partitions(bench: Bench) -> None:
    """Its requests would fill the bound; workers that are free run what other partitions have."""
    bench.environment |= {
        "ONCEPOOL_APP": "tests.support.limited_app:app",
        "ONCEPOOL_MAX_IN_HAND": str(BOUND),
    }
    bench.query(f"CREATE TABLE {bench.table}_notes (id text, type text, what text, at timestamptz)")

    def submit(kind: str, seconds: float, numbers: range, key: str | None = None) -> list[str]:
        payload = {"table": bench.table, "seconds": seconds}
        ids = [f"{kind}-{number:03}" for number in numbers]
        for request in ids:
            bench.client.submit(kind, payload, request_id=request, key=key or request)
        bench.client.flush(30)
        return ids

    def begun(kind: str) -> list[str]:
        found = bench.query(
            f"SELECT id FROM {bench.table}_notes"
            f" WHERE type = '{kind}' AND what = 'begin' ORDER BY at"
        )
        return [str(row[0]) for row in found]

    instance = bench.start()
    hot = submit("few", SECONDS, range(FIRST), "hot")
    instance.says("would fill the bound")
    hot += submit("few", SECONDS, range(FIRST, FIRST + MORE), "hot")
    submit("other", 0.0, range(QUICK))
    # Some of them stand behind the hot ones, in their partition.
    eventually(lambda: len(begun("other")) >= QUICK // 3, WAIT)
    found = begun("few")
    assert len(found) < BOUND // 2, "they had to wait until half of the bound was free"
    assert found == hot[: len(found)], "the order of the key"
    instance.kill()
    effects = [row[0] for row in bench.query(f"SELECT id FROM {bench.table}")]
    assert len(effects) == len(set(effects))
