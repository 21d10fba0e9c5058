"""How PostgreSQL finds rows of the waiting queue in a large journal."""

from __future__ import annotations

import pytest

from feedback.contract.record import claim_of
from feedback.journal.claims import LEASE, ClaimRequest, claim, claims_of, renew
from feedback.journal.queries import query
from feedback.journal.releases import release
from tests.support.waiting_rows import WaitingRows

CLAIMED = [("r1", 1), ("r2", 1)]
VALUES = {
    "expired": True,
    "types": ["t0", "t1"], "shares": [50, 50], "overdue": [0.0, 30.0],
    "token": "x:1", "lease": LEASE,
    "ids": [name for name, _ in CLAIMED], "tokens": ["x:1", "x:1"], "after": "", "most": 2000,
    "begun": ["r1"], "in_place": ["r1"],
    "bytes": 1 << 25, "header": 160, "prefix": "x:", "first": 40.0, "last": 60.0,
}  # fmt: skip
BY_TYPE = ("due_types", "due_of_types", "claim_due", "claims_between", "types_held_elsewhere")
BY_REFERENCE = (
    "start_coalesced", "claimed_in_vain", "renew_claims", "lock_claims", "supersede_claims",
    "supersede_older", "release_claims",
)  # fmt: skip


@pytest.fixture
def schema(new_schema: str) -> str:
    """Its tables have not been analysed yet, and are of no size."""
    return new_schema


def test_a_large_table_is_never_scanned(rows: WaitingRows) -> None:
    rows.add_many(100_000)
    rows.query(f"UPDATE {rows.schema}.requests SET coalesce_key = id WHERE type = 't2'")
    rows.query(f"VACUUM ANALYZE {rows.schema}.requests")
    for name in BY_TYPE + BY_REFERENCE:
        plan = rows.explain(query(name, rows.schema), VALUES)
        assert '"Node Type":"Seq Scan"' not in plan, (name, plan)
        if name in BY_REFERENCE:
            # What is looked up by its reference must not be found among all that wait.
            assert "requests_due" not in plan, (name, plan)
    looked_at = rows.explain(query("open_rows", rows.schema), VALUES)
    assert "requests_due" in looked_at
    assert "requests_open_questions" in looked_at
    for order in range(10):
        want = ClaimRequest(order, 500)
        assert len(claim(rows.connection, "a", want, schema=rows.schema).rows) == 500


def scans(rows: WaitingRows) -> int:
    """How often the whole table was read."""
    return counted(rows, "seq_scan")


def fetched(rows: WaitingRows) -> int:
    """How many rows were read."""
    return counted(rows, "seq_tup_read + idx_tup_fetch")


def counted(rows: WaitingRows, what: str) -> int:
    rows.query("SELECT pg_stat_force_next_flush()")
    statement = (
        f"SELECT ({what})::int FROM pg_stat_user_tables"
        f" WHERE schemaname = '{rows.schema}' AND relname = 'requests'"
    )
    [(count,)] = rows.query(statement)
    return int(count)


def test_what_was_prepared_on_an_empty_queue_does_not_scan_a_full_one(rows: WaitingRows) -> None:
    # Nobody analyses the table but the test.
    rows.query(f"ALTER TABLE {rows.schema}.requests SET (autovacuum_enabled = false)")

    def use(order: int) -> None:
        found = claim(rows.connection, "a", ClaimRequest(order, 10), schema=rows.schema)
        pairs = [claim_of(row.record) for row in found.rows]
        assert pairs
        renew(rows.connection, "a", pairs, schema=rows.schema)
        release(rows.connection, "a", pairs, schema=rows.schema)

    for order in range(12):
        rows.add("x")
        use(order)
        rows.query(f"DELETE FROM {rows.schema}.requests")
    rows.add_many(30_000, analyze=False)
    before = scans(rows)
    for order in range(12, 15):
        use(order)
    assert scans(rows) == before


def test_an_instance_finds_its_claims_without_reading_all_that_waits(rows: WaitingRows) -> None:
    """A statement that takes too long would be tried again and again, and nothing be claimed."""
    rows.add_many(50_000, spread=3600.0)
    took = claim(rows.connection, "a", ClaimRequest(1, 20), schema=rows.schema).rows
    claim(rows.connection, "b", ClaimRequest(1, 20), schema=rows.schema)
    before = fetched(rows)
    found, _ = claims_of(rows.connection, "a", 10.0, 0.0, schema=rows.schema)
    assert found == {claim_of(row.record) for row in took}
    assert claims_of(rows.connection, "a", 40.0, 30.0, schema=rows.schema) == (set(), "")
    assert fetched(rows) - before < 1000
