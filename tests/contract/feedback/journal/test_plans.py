"""How PostgreSQL finds rows of the waiting queue in a large journal."""

from __future__ import annotations

from feedback.journal.claims import LEASE, ClaimRequest, claim
from feedback.journal.queries import query
from tests.support.waiting_rows import WaitingRows

CLAIMED = [("r1", 1), ("r2", 1)]
VALUES = {
    "types": ["t0", "t1"], "shares": [50, 50], "token": "x:1", "lease": LEASE,
    "ids": [name for name, _ in CLAIMED], "tokens": ["x:1", "x:1"], "after": "", "most": 2000,
}  # fmt: skip
BY_TYPE = ("due_types", "claim_due")
BY_REFERENCE = (
    "start_coalesced", "claimed_in_vain", "renew_claims", "lock_claims", "supersede_claims",
    "supersede_older", "release_claims",
)  # fmt: skip


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
    for order in range(10):
        want = ClaimRequest(order, 500)
        assert len(claim(rows.connection, "a", want, schema=rows.schema).rows) == 500
