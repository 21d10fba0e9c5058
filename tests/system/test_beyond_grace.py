"""A stop whose grace is shorter than what runs: the next owner of the partition has all of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

PARTITIONS = 1


def test_what_is_killed_is_the_next_owners_before_what_comes_after_it(
    bench: Bench, tmp_path: Path
) -> None:
    more = {"ONCEPOOL_GRACE": "3", "ONCEPOOL_WORKERS": "1"}
    owner = bench.start(**more)
    go, paced = tmp_path / "go", {"table": bench.table, "seconds": 600}
    bench.client.submit("paced", {**paced, "until": str(go)}, request_id="a-1", key="k")
    for n in (2, 3):
        bench.client.submit("effect", {"table": bench.table}, request_id=f"a-{n}", key="k")
    bench.client.flush()
    eventually(lambda: bench.said()["in_hand"] == 3, WAIT, lambda: owner.log)
    eventually(lambda: bench.said()["running"], WAIT, lambda: str(bench.said()))
    bench.start(wait=False, **more)
    eventually(lambda: sum(f.get("joined", False) for f in bench.facts()) == 2, WAIT)
    assert owner.stop() == 3
    assert bench.states() == {}, "a row would stand in the way of who has begun it anew"
    go.touch()
    eventually(lambda: bench.done() == 3, WAIT, lambda: f"{bench.states()}")
    assert bench.query(f"SELECT id FROM {bench.table}") == [("a-1",), ("a-2",), ("a-3",)]
