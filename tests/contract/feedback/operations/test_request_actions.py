"""What operators do to requests, on real PostgreSQL; races are two connections."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
import pytest

from feedback.contract.payloads import write_json
from feedback.contract.states import State
from feedback.operations.request_actions import (
    By,
    Moved,
    Resolution,
    ResultRefused,
    TransitionOutcome,
    cancel,
    drop,
    resolve,
    retry,
)
from feedback.operations.request_reads import get_statuses, select_ids, show_request
from feedback.status.status import Status
from tests.support.journal import Journal
from tests.support.moves import refusal

BY = By("ann", "the provider is back")
LEASE = "now() + interval '60 s'"


def retried(journal: Journal, *ids: str, **options: Any) -> TransitionOutcome:
    return retry(journal.connection, ids, BY, schema=journal.schema, **options)


def cancelled(journal: Journal, *ids: str, **options: Any) -> TransitionOutcome:
    return cancel(journal.connection, ids, BY, schema=journal.schema, **options)


def resolved(
    journal: Journal, id: str, resolution: Resolution, **options: Any
) -> TransitionOutcome:
    return resolve(journal.connection, [id], resolution, BY, schema=journal.schema, **options)


def the_one(outcome: TransitionOutcome) -> Moved:
    assert outcome.refused == []
    (moved,) = outcome.moved
    return moved


def decoded(moved: Moved) -> Status:
    return Status.decode(moved.status().value)


# Retry


@pytest.mark.parametrize("state", ["dead", "failed", "cancelled"])
def test_a_retried_request_starts_anew_and_keeps_its_history(journal: Journal, state: str) -> None:
    journal.put("r", state, not_before="2020-01-01", token="old")

    moved = the_one(retried(journal, "r"))

    row = journal.get("r")
    assert (row["state"], row["code"], row["run"]) == ("waiting", "retried", 4)
    assert (row["attempt"], row["used"], row["crashes"]) == (1, 0, 0)
    assert row["due_at"] == row["not_before"] == moved.due_at
    assert datetime.now(UTC) - row["due_at"] < timedelta(seconds=60)
    assert (row["token"], row["lease_until"], row["finished_at"]) == (None, None, None)
    assert (row["payload"], row["error"], row["reason"]) == (b'{"n": 1}', None, BY.why)
    (noted,) = journal.rows("SELECT * FROM {s}.transitions")
    assert (noted["request_id"], noted["action"], noted["run"]) == ("r", "retry", 4)
    assert (noted["from_state"], noted["to_state"]) == (state, "waiting")
    assert (noted["who"], noted["why"]) == BY
    runs = [(a["run"], a["error"]) for a in journal.rows("SELECT * FROM {s}.attempts")]
    assert runs == ([] if state == "cancelled" else [(3, "ValueError: boom")])


def test_a_run_that_the_timeline_has_stays_as_it_is(journal: Journal) -> None:
    journal.put("r")
    journal.insert(
        "attempts", request_id="r", run=3, code="timeout", started_at="now", ended_at="now"
    )

    retried(journal, "r")

    shown = show_request(journal.connection, "r", schema=journal.schema)
    assert shown is not None
    assert [a["code"] for a in shown["attempts"]] == ["timeout"]
    assert [t["action"] for t in shown["transitions"]] == ["retry"]


def test_a_retry_wakes_all_instances(journal: Journal) -> None:
    journal.put("r")
    with psycopg.connect(journal.url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{journal.schema}_due"')
        retried(journal, "r")
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1


@pytest.mark.parametrize(
    "state,columns,reason",
    [
        ("done", {}, "is done; submit it under a new id"),
        ("rejected", {"code": "no_funds"}, "refused for good (no_funds)"),
        ("superseded", {"superseded_by": "r-2"}, "superseded by r-2"),
        ("waiting", {"due_at": "2031-02-03T04:05:06Z"}, "waits already, due at 2031-02-03T04:05"),
        ("waiting", {"token": "t", "due_at": "2031-02-03T04:05:06Z"}, "is running right now"),
        ("running", {"token": "t"}, "is running right now"),
        ("in_doubt", {}, "oncepool requests resolve"),
        ("dead", {"payload": None}, "has no payload in the journal"),
    ],
)
def test_what_cannot_be_retried_says_what_to_do_instead(
    journal: Journal, state: str, columns: dict[str, Any], reason: str
) -> None:
    journal.put("r", state, **columns)
    before = journal.get("r")

    assert reason in refusal(retried(journal, "r"))

    assert journal.get("r") == before
    assert journal.rows("SELECT * FROM {s}.transitions") == []


def test_an_unknown_id_is_refused_and_the_others_move(journal: Journal) -> None:
    journal.put("r")

    outcome = retried(journal, "r", "nowhere", "r")

    assert [m.id for m in outcome.moved] == ["r"]
    assert [(r.id, r.state) for r in outcome.refused] == [("nowhere", None)]


def test_many_are_retried_at_once(journal: Journal) -> None:
    journal.run(
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at, payload, finished_at) SELECT 'r' || n, 'a.b', 'dead', 'timeout', 'none',"
        " 't', 0, n, now(), '{}', now() FROM generate_series(1, 1234) n"
    )
    ids = select_ids(journal.connection, {"state": "dead", "type": "a.*"}, schema=journal.schema)

    outcome = retried(journal, *ids)

    assert len(outcome.moved) == 1234
    (count,) = journal.rows("SELECT count(*) FROM {s}.requests WHERE state = 'waiting'")
    assert count["count"] == 1234


def test_a_bulk_retry_leaves_what_is_in_another_state_by_now(journal: Journal) -> None:
    journal.put("r", "cancelled")

    assert "only" in refusal(retried(journal, "r", states=[State.DEAD]))


# Cancel


def test_a_waiting_request_is_cancelled(journal: Journal) -> None:
    journal.put("r", "waiting", due_at="2031-01-01", not_before="2031-01-01", coalesce_key="k")

    assert the_one(cancelled(journal, "r")).state == "cancelled"

    row = journal.get("r")
    assert (row["state"], row["code"], row["run"]) == ("cancelled", "cancelled", 4)
    assert (row["due_at"], row["token"]) == (None, None)
    assert row["finished_at"] is not None
    assert row["payload"] is not None, "it can be retried"
    assert journal.rows("SELECT * FROM {s}.results") == []


def test_one_whose_lease_is_over_is_cancelled(journal: Journal) -> None:
    past = "2026-01-01"
    journal.put("r", "waiting", token="i:1", lease_until=past, due_at=past)

    assert the_one(cancelled(journal, "r")).state == "cancelled"


def test_one_in_hand_is_not_cancelled(journal: Journal) -> None:
    journal.put("r", "waiting", token="i:1", due_at="2031-01-01", lease_until="2031-01-01")

    assert "can be cancelled some seconds after it began" in refusal(cancelled(journal, "r"))


@pytest.mark.parametrize(
    "state", ["done", "rejected", "superseded", "cancelled", "failed", "dead", "running"]
)
def test_what_does_not_wait_is_not_cancelled(journal: Journal, state: str) -> None:
    journal.put("r", state, superseded_by="r-2")
    before = journal.get("r")

    assert refusal(cancelled(journal, "r"))

    assert journal.get("r") == before


def test_what_ends_leaves_a_result_record_where_wanted(journal: Journal) -> None:
    journal.put("r", "waiting", due_at="now")
    journal.put("s", "in_doubt")

    cancelled(journal, "r", results=True)
    resolved(journal, "s", "done", result=b'{"n": 1}', results=True)

    rows = journal.rows("SELECT * FROM {s}.results ORDER BY id")
    assert [(r["request_id"], r["state"], r["code"], r["result"]) for r in rows] == [
        ("r", "cancelled", "cancelled", None),
        ("s", "done", "resolved", {"n": 1}),
    ]


# Resolve


def test_in_doubt_becomes_done_with_a_result(journal: Journal) -> None:
    journal.put("r", "in_doubt", token="old", effect="external")

    moved = the_one(resolved(journal, "r", "done", result=b'{"paid": 12345678901234567890}'))

    row = journal.get("r")
    assert (row["state"], row["code"], row["run"]) == ("done", "resolved", 4)
    assert (row["payload"], row["headers"], row["error"]) == (None, None, None)
    assert decoded(moved).result == {"paid": 12345678901234567890}


def test_in_doubt_becomes_failed(journal: Journal) -> None:
    journal.put("r", "in_doubt", token="old")

    assert the_one(resolved(journal, "r", "failed")).state == "failed"

    row = journal.get("r")
    assert (row["error"], row["reason"], row["token"]) == ("ValueError: boom", BY.why, None)
    assert row["payload"] is not None, "sending it again runs it again"


def test_in_doubt_is_retried(journal: Journal) -> None:
    journal.put("r", "in_doubt", token="old", effect="external")

    assert the_one(resolved(journal, "r", "retry")).state == "waiting"

    (noted,) = journal.rows("SELECT * FROM {s}.transitions")
    assert (noted["action"], noted["from_state"], noted["to_state"]) == (
        "resolve", "in_doubt", "waiting",
    )  # fmt: skip


@pytest.mark.parametrize("resolution", ["done", "failed", "retry"])
def test_only_what_is_in_doubt_is_resolved(journal: Journal, resolution: Resolution) -> None:
    journal.put("r", "dead")

    assert "is dead; only requests in doubt" in refusal(resolved(journal, "r", resolution))


@pytest.mark.parametrize("result", [b"{oops", b"NaN", b"\xff", b'"a\\u0000b"'])
def test_a_result_that_is_not_json_changes_nothing(journal: Journal, result: bytes) -> None:
    journal.put("r", "in_doubt")

    with pytest.raises(ResultRefused):
        resolved(journal, "r", "done", result=result)

    assert journal.get("r")["state"] == "in_doubt"


def test_a_result_is_taken_that_its_status_can_be_read_with(journal: Journal) -> None:
    journal.put("r", "in_doubt")
    with pytest.raises(ResultRefused, match="nested deeper than 499 levels"):
        resolved(journal, "r", "done", result=nested(500))
    assert journal.get("r")["state"] == "in_doubt"

    moved = the_one(resolved(journal, "r", "done", result=nested(499)))

    told = write_json(decoded(moved).result)
    stored = get_statuses(journal.connection, ["r"], schema=journal.schema)
    assert told == nested(499) == write_json(stored["r"].result)


def test_a_row_that_makes_no_status_takes_no_other_with_it(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.put("good", "done")
    journal.put("deep", "done", result=nested(500).decode())

    found = get_statuses(journal.connection, ["good", "deep"], schema=journal.schema)

    assert {name: status.state for name, status in found.items()} == {"good": "done"}
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("the status of request deep left out: nested deeper than 500")


def test_a_large_result_of_a_row_is_given_as_it_stands(journal: Journal) -> None:
    result = f"[{', '.join(['1.50'] * 5_000)}]"
    journal.put("large", "done", result=result, error=None)
    found = get_statuses(journal.connection, ["large"], schema=journal.schema)["large"]
    assert found.result_json == result.encode()


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


# Drop


def test_a_dropped_request_keeps_its_id_taken(journal: Journal) -> None:
    journal.put("r")

    assert the_one(drop(journal.connection, ["r"], BY, schema=journal.schema)).code == "dropped"

    assert journal.get("r")["state"] == "cancelled"
    assert journal.rows("SELECT * FROM {s}.dead") == []
    assert "only dead" in refusal(drop(journal.connection, ["r"], BY, schema=journal.schema))


# Races. `holding` is the one that comes first.


RESEND = """UPDATE {s}.requests SET state = 'done', code = 'ok', run = 4
WHERE id = 'r' AND run = 3 AND state = 'failed' AND token IS NULL"""


def test_a_retry_finds_that_a_resend_was_quicker(journal: Journal) -> None:
    journal.put("r", "failed")
    with journal.holding(RESEND):
        rival = journal.rival(lambda c: retry(c, ["r"], BY, schema=journal.schema))

    assert "is done" in refusal(rival.result())
    assert (journal.get("r")["state"], journal.get("r")["run"]) == ("done", 4)


def test_a_resend_misses_what_was_retried(journal: Journal) -> None:
    journal.put("r", "failed")
    with journal.holding("SELECT FROM {s}.requests WHERE id = 'r' FOR UPDATE") as first:
        text = RESEND.replace("{s}", journal.schema).encode()
        rival = journal.rival(lambda c: c.execute(text).rowcount)
        retry(first, ["r"], BY, schema=journal.schema)

    assert rival.result() == 0
    assert journal.get("r")["state"] == "waiting"


def test_of_two_retries_one_moves(journal: Journal) -> None:
    journal.put("r")
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        moved = retry(first, ["r"], BY, schema=journal.schema)
        rival = journal.rival(lambda c: retry(c, ["r"], BY, schema=journal.schema))

    assert the_one(moved).run == 4
    assert "waits already" in refusal(rival.result())
    assert journal.get("r")["run"] == 4


CLAIM = f"""UPDATE {{s}}.requests SET token = 'i:1', run = run + 1, lease_until = {LEASE},
due_at = {LEASE} WHERE id = 'r' AND state = 'waiting' AND due_at <= statement_timestamp()"""


def test_a_cancel_finds_that_a_claim_was_quicker(journal: Journal) -> None:
    journal.put("r", "waiting", due_at="2026-01-01")
    with journal.holding(CLAIM):
        rival = journal.rival(lambda c: cancel(c, ["r"], BY, schema=journal.schema))

    assert "is running right now" in refusal(rival.result())
    assert journal.get("r")["token"] == "i:1"


def test_a_claim_misses_what_was_cancelled(journal: Journal) -> None:
    journal.put("r", "waiting", due_at="2026-01-01")
    text = CLAIM.replace("{s}", journal.schema).encode()
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        the_one(cancel(first, ["r"], BY, schema=journal.schema))
        rival = journal.rival(lambda c: c.execute(text).rowcount)

    assert rival.result() == 0
    assert journal.get("r")["state"] == "cancelled"


def test_the_final_of_a_lease_that_is_over_misses_what_was_cancelled(journal: Journal) -> None:
    past = "2026-01-01"
    journal.put("r", "waiting", token="i:1", lease_until=past, due_at=past)
    final = """UPDATE {s}.requests SET state = 'done' WHERE id = 'r' AND run = 3
               AND state = 'waiting' AND token = 'i:1'"""
    text = final.replace("{s}", journal.schema).encode()
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        the_one(cancel(first, ["r"], BY, schema=journal.schema))
        rival = journal.rival(lambda c: c.execute(text).rowcount)

    assert rival.result() == 0


def test_a_cancel_loses_to_the_late_final_of_an_old_lease(journal: Journal) -> None:
    past = "2026-01-01"
    journal.put("r", "waiting", token="i:1", lease_until=past, due_at=past)
    with journal.holding("UPDATE {s}.requests SET state = 'done', token = NULL WHERE id = 'r'"):
        rival = journal.rival(lambda c: cancel(c, ["r"], BY, schema=journal.schema))

    assert "is done" in refusal(rival.result())


def test_of_two_that_resolve_one_counts(journal: Journal) -> None:
    journal.put("r", "in_doubt", token="old")
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        the_one(resolve(first, ["r"], "failed", BY, schema=journal.schema))
        rival = journal.rival(
            lambda c: resolve(c, ["r"], "done", BY, result=b"1", schema=journal.schema)
        )

    assert "is failed; only requests in doubt" in refusal(rival.result())
    assert (journal.get("r")["state"], journal.get("r")["result"]) == ("failed", None)


FINAL = """UPDATE {s}.requests SET state = 'done', code = 'ok' WHERE id = 'r' AND token = 'old'
AND state IN ('running', 'in_doubt')"""


@pytest.mark.parametrize("resolution", ["done", "failed", "retry"])
def test_the_late_final_misses_what_was_resolved(journal: Journal, resolution: Resolution) -> None:
    journal.put("r", "in_doubt", token="old")
    text = FINAL.replace("{s}", journal.schema).encode()
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        the_one(resolve(first, ["r"], resolution, BY, schema=journal.schema))
        rival = journal.rival(lambda c: c.execute(text).rowcount)

    assert rival.result() == 0
    assert journal.get("r")["code"] in ("resolved", "retried")


def test_a_resolve_finds_that_the_late_final_was_quicker(journal: Journal) -> None:
    journal.put("r", "in_doubt", token="old")
    with journal.holding(FINAL):
        rival = journal.rival(lambda c: resolve(c, ["r"], "retry", BY, schema=journal.schema))

    assert "is done; only requests in doubt" in refusal(rival.result())


def test_of_a_retry_and_a_drop_one_counts(journal: Journal) -> None:
    journal.put("r")
    with psycopg.connect(journal.url, autocommit=True) as first, first.transaction():
        the_one(drop(first, ["r"], BY, schema=journal.schema))
        rival = journal.rival(
            lambda c: retry(c, ["r"], BY, states=[State.DEAD], schema=journal.schema)
        )

    assert "only" in refusal(rival.result())
    assert journal.get("r")["state"] == "cancelled"


# Statuses


def test_a_waiting_status_says_when_and_lives_until_then(journal: Journal) -> None:
    channel = base64.b64encode(b"answers-1").decode()
    headers = orjson.dumps([["ce_replyto", channel], ["x", None]]).decode()
    journal.put("r", fingerprint=b"\1" * 16, status_ttl=60, headers=headers)

    write = (moved := the_one(retried(journal, "r"))).status()

    status = decoded(moved)
    assert (status.state, status.code, status.v) == ("waiting", "retried", "000043")
    assert status.retry_at == moved.due_at
    assert status.fingerprint == "01" * 16
    assert (write.ttl, write.reply_to) == (60, "answers-1")
    late = moved._replace(due_at=moved.at + timedelta(seconds=100)).status()
    assert late.ttl == 160


def test_a_fingerprint_of_the_types_own_is_not_told(journal: Journal) -> None:
    journal.put("r", fingerprint=b"\1" * 16, own_fingerprint=True)

    moved = the_one(retried(journal, "r"))

    assert decoded(moved).fingerprint is None
    assert moved.status().ttl == 3600


def test_a_resolved_request_still_tells_its_producer(journal: Journal) -> None:
    headers = orjson.dumps([["ce_replyto", base64.b64encode(b"c").decode()]]).decode()
    journal.put("r", "in_doubt", headers=headers)

    assert the_one(resolved(journal, "r", "done")).status().reply_to == "c"


@pytest.mark.parametrize("state", ["dead", "in_doubt"])
def test_what_ran_meanwhile_is_not_moved_as_what_was_seen(journal: Journal, state: str) -> None:
    journal.put("same", state, run=1)
    journal.put("later", state, run=3)
    seen = {"same": 1, "later": 1}
    where = {"runs": seen, "schema": journal.schema}
    if state == "dead":
        outcome = retry(journal.connection, seen, BY, **where)
        dropped = drop(journal.connection, ["later"], BY, **where)
    else:
        outcome = resolve(journal.connection, seen, "retry", BY, **where)
        dropped = resolve(journal.connection, ["later"], "done", BY, **where)
    assert [one.id for one in outcome.moved] == ["same"]
    assert [one.id for one in outcome.refused] == ["later"]
    assert "is at run 3, not 1" in refusal(dropped)
    assert journal.get("later")["state"] == state
