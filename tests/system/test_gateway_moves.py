"""Moves over HTTP while an answer is lost, or Redis hangs."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from tests.support.gateway_process import GatewayProcess
from tests.support.journal import Journal
from tests.support.proxy import Proxy, says_commit
from tests.support.service import WAIT, Bench
from tests.support.statuses import write

MOVES = 30


def test_of_a_move_whose_commit_gets_no_answer_it_is_said_that_nobody_knows(
    bench: Bench, tmp_path: Path
) -> None:
    """The status of what it did is written when it is asked for again."""
    journal = Journal(bench.database, bench.schema)
    journal.put("r", "in_doubt", effect="external", code="timeout", run=3)
    store = RedisStatusStore(
        bench.stack.redis, bench.environment["ONCEPOOL_REDIS_PREFIX"], timeout=WAIT
    )
    store.write([write("r", State.IN_DOUBT, run=3)])

    def told() -> State | None:
        status = store.read(["r"])[0]
        return None if status is None else status.state

    with Proxy.of(bench.database) as proxy:
        place = {"ONCEPOOL_DATABASE_URL": proxy.before(bench.database)}
        with GatewayProcess(bench.environment | place, tmp_path / "gateway.log") as gateway:
            lost = proxy.wish(says_commit)
            answer = gateway.http.post("/requests/r/resolve", json={"as": "done"})
            assert lost.fulfilled.is_set()
            assert answer.status_code == 503
            assert "nobody knows whether it did: look again" in answer.json()["detail"]
            assert (journal.get("r")["state"], told()) == ("done", State.IN_DOUBT)

            again = gateway.http.post("/requests/r/resolve", json={"as": "done"})
            assert (again.status_code, again.json()["state"]) == (409, "done"), again.text
            assert told() is State.DONE
    store.close()
    journal.close()


def test_moves_do_not_wait_for_a_redis_that_hangs(bench: Bench, tmp_path: Path) -> None:
    """Nor is the database blamed for it: its connections are given back first."""
    journal = Journal(bench.database, bench.schema)
    for n in range(MOVES):
        journal.put(f"d{n}", "dead")
    with Proxy.of(bench.stack.redis) as redis:
        place = {"ONCEPOOL_REDIS_URL": redis.before(bench.stack.redis)}
        with GatewayProcess(bench.environment | place, tmp_path / "gateway.log") as gateway:
            assert gateway.http.get("/dead-letters").status_code == 200
            redis.hang()

            def retry(n: int) -> int:
                return gateway.http.post(f"/requests/d{n}/retry").status_code

            with ThreadPoolExecutor(MOVES) as pool:
                answers = Counter(pool.map(retry, range(MOVES)))
            assert answers == {200: MOVES}, gateway.log
            assert "The journal has the change" in gateway.log
            redis.mend()
    assert journal.rows("SELECT count(*) AS n FROM {s}.requests WHERE state = 'waiting'") == [
        {"n": MOVES}
    ]
    journal.close()
