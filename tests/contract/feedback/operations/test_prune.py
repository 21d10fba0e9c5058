"""Pruning on real PostgreSQL."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from feedback.journal.queries import query
from feedback.operations import prune as pruning
from feedback.operations.prune import prunable, prune
from tests.support.journal import Journal

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=40)
BEFORE = NOW - timedelta(days=30)
GONE = ["done", "rejected", "superseded", "cancelled", "failed"]
KEPT = ["waiting", "running", "in_doubt", "dead"]


@pytest.fixture
def schema(new_schema: str) -> str:
    """It goes by pages: there are none yet."""
    return new_schema


def pruned(journal: Journal) -> dict[str, int]:
    deleted: Counter[str] = Counter()
    for step in prune(journal.connection, BEFORE, schema=journal.schema, sleep=lambda _: None):
        deleted.update(step.deleted)
    return {table: n for table, n in deleted.items() if n}


def ids(journal: Journal, table: str, column: str = "request_id") -> list[object]:
    rows = journal.rows(f"SELECT {column} AS id FROM {{s}}.{table} ORDER BY 1")
    return [row["id"] for row in rows]


def test_what_ended_long_ago_goes_and_the_rest_stays(journal: Journal) -> None:
    for state in GONE + KEPT:
        journal.put(f"old-{state}", state, created_at=OLD, finished_at=OLD)
        journal.put(f"new-{state}", state, created_at=OLD)
    assert prunable(journal.connection, BEFORE, schema=journal.schema)["requests"] == 5

    assert pruned(journal) == {"requests": 5}

    left = [f"new-{state}" for state in GONE + KEPT] + [f"old-{state}" for state in KEPT]
    assert ids(journal, "requests", "id") == sorted(left)


def test_what_a_worker_with_a_clock_that_stands_still_wrote_stays(journal: Journal) -> None:
    """Its copies may still come: forgotten, one of them would run again."""
    journal.put("a", "done", created_at=NOW, finished_at=datetime.fromtimestamp(0, UTC))
    assert prunable(journal.connection, BEFORE, schema=journal.schema)["requests"] == 0
    assert pruned(journal) == {}
    assert ids(journal, "requests", "id") == ["a"]


def test_what_belongs_to_a_request_goes_with_it(journal: Journal) -> None:
    for name, state, ended in (("a", "done", OLD), ("b", "dead", OLD), ("c", "done", NOW)):
        journal.put(name, state, finished_at=ended)
    for name in ("a", "b", "c", "without-row"):
        journal.insert(
            "attempts", request_id=name, run=1, code="timeout", started_at=OLD, ended_at=OLD
        )
        journal.insert(
            "transitions", request_id=name, run=1, action="retry", from_state="dead",
            to_state="waiting", who="ann", at=OLD,
        )  # fmt: skip
    journal.insert(
        "attempts", request_id="new-without-row", run=1, code="x", started_at=OLD, ended_at=NOW
    )

    counted = prunable(journal.connection, BEFORE, schema=journal.schema)
    assert {table: n for table, n in counted.items() if n} == (
        {"requests": 1, "attempts": 2, "transitions": 2}
    )
    assert pruned(journal) == {"requests": 1, "attempts": 2, "transitions": 2}

    assert ids(journal, "attempts") == ["b", "c", "new-without-row"]
    assert ids(journal, "transitions") == ["b", "c"]


def test_old_counters_references_and_retried_letters_go(journal: Journal) -> None:
    for n, moment in enumerate((OLD, NOW)):
        journal.insert("counters", minute=moment, n=1, type="a", state="done", code="ok")
        journal.insert(
            "coalesced", type="a", coalesce_key=str(n), produced_at=moment, request_id=str(n)
        )
        journal.insert(
            "dead_letters", topic="t", partition=0, kafka_offset=n, produced_at=OLD, at=OLD,
            reason="malformed", retried_at=moment,
        )  # fmt: skip
        journal.insert(
            "operator_changes", what="schedule", name=str(n), action="pause", who="ann", at=moment
        )
    journal.insert(
        "dead_letters", topic="t", partition=0, kafka_offset=9, produced_at=OLD, at=OLD,
        reason="malformed",
    )  # fmt: skip

    counted = prunable(journal.connection, BEFORE, schema=journal.schema)
    counted = {table: n for table, n in counted.items() if n}
    assert counted == {"dead_letters": 1, "coalesced": 1, "counters": 1, "operator_changes": 1}
    assert pruned(journal) == counted
    assert ids(journal, "operator_changes", "name") == ["1"]
    assert ids(journal, "coalesced") == ["1"]
    assert ids(journal, "dead_letters", "kafka_offset") == [1, 9]


OPEN = ("failed", "dead", "cancelled", "in_doubt", "running", "waiting", "claimed")


@pytest.mark.parametrize("state", OPEN)
def test_what_is_remembered_of_a_reference_stays_while_an_older_one_may_run_again(
    journal: Journal, state: str
) -> None:
    """Forgotten, an operator's retry of it would run over the newer one."""
    token = "x:1" if state == "claimed" else None
    state = "waiting" if state == "claimed" else state
    journal.put("old", state, type="a", coalesce_key="k", created_at=OLD, token=token)
    for n, key in enumerate(("k", "other")):
        journal.insert("coalesced", type="a", coalesce_key=key, produced_at=OLD, request_id=str(n))
    assert prunable(journal.connection, BEFORE, schema=journal.schema)["coalesced"] == 1
    assert pruned(journal) == {"coalesced": 1}
    assert ids(journal, "coalesced", "coalesce_key") == ["k"]


def test_what_is_remembered_goes_with_the_last_request_that_might_have_run_again(
    journal: Journal,
) -> None:
    for name, state in (("a", "failed"), ("b", "cancelled"), ("c", "superseded"), ("d", "done")):
        journal.put(name, state, type="a", coalesce_key="k", created_at=OLD, finished_at=OLD)
    journal.insert("coalesced", type="a", coalesce_key="k", produced_at=OLD, request_id="d")
    assert prunable(journal.connection, BEFORE, schema=journal.schema)["coalesced"] == 1
    assert pruned(journal) == {"requests": 4, "coalesced": 1}


@pytest.mark.parametrize("ended", [NOW, OLD])
def test_what_is_remembered_of_a_reference_stays_as_long_as_the_row_that_it_names(
    journal: Journal, ended: datetime
) -> None:
    """A producer's clock may be far behind: it says nothing of when the request was started."""
    journal.put(
        "newer", "done", type="a", coalesce_key="k", produced_at=OLD, created_at=NOW,
        finished_at=ended,
    )  # fmt: skip
    journal.insert("coalesced", type="a", coalesce_key="k", produced_at=OLD, request_id="newer")
    assert prunable(journal.connection, BEFORE, schema=journal.schema)["coalesced"] == 0
    assert pruned(journal) == {}


@pytest.mark.parametrize("statistics", [True, False])
def test_references_are_looked_up_by_indexes_in_a_large_table(
    journal: Journal, statistics: bool
) -> None:
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, coalesce_key) SELECT 'r' || n, 'a', CASE n %% 3 WHEN 0 THEN 'failed'"
        " WHEN 1 THEN 'superseded' ELSE 'done' END, 'ok', 'transaction', 't', 0, n, now(),"
        " CASE WHEN n %% 3 < 2 THEN 'k' || n END FROM generate_series(1, 50000) AS n"
    )
    journal.run(
        "INSERT INTO {s}.coalesced SELECT %s, 'a', 'k' || n, 'r' || n"
        " FROM generate_series(1, 20000) AS n", OLD,
    )  # fmt: skip
    if statistics:
        journal.run("ANALYZE {s}.requests, {s}.coalesced")
    values = {"first": "(0,0)", "end": "(200,0)", "before": BEFORE}
    text = f"EXPLAIN {query('prune_coalesced', journal.schema)}"
    plan = [line for (line,) in journal.connection.execute(text.encode(), values)]
    assert sum("requests_" in line for line in plan) == 4, plan
    assert not any("Seq Scan on requests" in line for line in plan), plan


def test_it_goes_page_range_by_page_range(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "PAGES", 3)
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, created_at, finished_at) SELECT 'r' || n, 'a', 'done', 'ok', 'none', 't', 0,"
        " n, now(), %s, CASE WHEN n %% 2 = 0 THEN %s ELSE now() END FROM generate_series(1, 2000)"
        " AS n",
        OLD,
        OLD,
    )

    steps = list(prune(journal.connection, BEFORE, schema=journal.schema, sleep=lambda _: None))

    per_step = [step.deleted["requests"] for step in steps]
    assert sum(per_step) == 1000
    assert max(per_step) < 200, "bounded"
    assert max(step.pages for step in steps) == 3
    assert len(ids(journal, "requests", "id")) == 1000


@pytest.mark.parametrize(
    "share, took, pauses",
    [
        (0.05, 0.2, [3.8]),
        (0.25, 1.0, [3.0]),
        (0.5, 0.001, [pruning.PAUSE]),
        (0.05, 3.0, [pruning.LONGEST_PAUSE]),
        (1, 2.0, []),
    ],
)
def test_between_steps_it_pauses_for_some_times_as_long(
    journal: Journal, share: float, took: float, pauses: list[float]
) -> None:
    """What is done with a step counts, too: that is work as well."""
    journal.put("a", "done", finished_at=OLD)
    journal.insert("attempts", request_id="b", run=1, code="x", started_at=OLD, ended_at=OLD)
    slept: list[float] = []
    times = iter([0.0, took, 10.0, 10.0 + took])

    steps = prune(
        journal.connection, BEFORE, schema=journal.schema, share=share,
        sleep=slept.append, clock=lambda: next(times),
    )  # fmt: skip

    assert [step.deleted.get("requests", 0) for step in steps] == [1, 0]
    assert slept == pytest.approx(pauses)


def test_a_row_that_is_locked_is_left_for_the_next_time(journal: Journal) -> None:
    journal.put("a", "done", finished_at=OLD)
    journal.put("b", "failed", finished_at=OLD)
    with psycopg.connect(journal.url) as resend:
        resend.execute(f"SELECT FROM {journal.schema}.requests WHERE id = 'b' FOR UPDATE")
        assert pruned(journal) == {"requests": 1}

    assert ids(journal, "requests", "id") == ["b"]
    assert pruned(journal) == {"requests": 1}
