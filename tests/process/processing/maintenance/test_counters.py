from __future__ import annotations

import pytest

from feedback.status.redis_store import RedisStatusStore
from processing.ipc.frames import Counts, DatabaseState, EndCalls, ProbeDatabase
from stack import Stack
from tests.support.journal import Journal
from tests.support.maintenance import StartMaintenance, counters, state_of
from tests.support.proxy import Proxy, commit_after
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows


def test_counters_are_exact(start: StartMaintenance, stack: Stack, schema: str) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    for _ in range(50):
        maintenance.send(Counts({("a", "done", "ok"): 3, ("b", "failed", "timeout"): 1}))
    assert maintenance.stop() == 0

    assert counters(stack, schema) == {("a", "done", "ok"): 150, ("b", "failed", "timeout"): 50}


def test_counters_outlive_an_outage(
    start: StartMaintenance, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through)
    maintenance.ready()
    proxy.cut()
    maintenance.send(Counts({("a", "done", "ok"): 3}))
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up

    proxy.mend()
    maintenance.send(Counts({("a", "done", "ok"): 4}))

    eventually(lambda: counters(stack, schema) == {("a", "done", "ok"): 7})


def test_what_a_message_calls_its_type_stops_no_counter(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    dead = ("dead_letter", "malformed")
    odd = ["pay\0ment", "\ud800", "".join(chr(0x10000 + n) for n in range(9_000))]

    maintenance.send(Counts({(kind, *dead): 1 for kind in odd} | {("a", "done", "ok"): 5}))

    named = {("pay\ufffdment", *dead): 1, ("?", *dead): 1, (odd[2][:200], *dead): 1}
    eventually(lambda: counters(stack, schema) == named | {("a", "done", "ok"): 5})
    assert maintenance.received(DatabaseState) == []


def test_a_count_that_the_database_refuses_stops_no_other(
    start: StartMaintenance, journal: Journal, stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    journal.run("ALTER TABLE {s}.counters ADD CONSTRAINT no_b CHECK (type <> 'b')")
    maintenance = start(schema=journal.schema)
    maintenance.ready()
    for n in range(2):
        maintenance.send(Counts({(kind, "done", "ok"): 1 for kind in "abcd"}))
        eventually(
            lambda n=n: (
                counters(stack, journal.schema) == {(kind, "done", "ok"): n + 1 for kind in "acd"}
            )
        )
    assert maintenance.received(DatabaseState) == []
    assert maintenance.stop() == 0
    assert capfd.readouterr().err.count("a count could not be written") == 2


def test_what_a_commit_did_whose_answer_was_lost_is_told_and_counted_once(
    start: StartMaintenance,
    stack: Stack,
    rows: WaitingRows,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
) -> None:
    rows.add("call", state="running", type="card", effect="external", token="chunk")
    rows.query(f"UPDATE {rows.schema}.requests SET lease_until = now() + interval '1 hour'")
    maintenance = start(schema=rows.schema, database_url=through)
    maintenance.ready()
    proxy.wish(commit_after(b"state = 'in_doubt'"))
    maintenance.send(EndCalls({"chunk": "shutdown"}, [], []))
    eventually(lambda: state_of(statuses, "call") == ("in_doubt", "shutdown"))
    assert proxy.lost == 1

    lost = proxy.wish(commit_after(b".counters AS c"))
    maintenance.send(Counts({("a", "done", "ok"): 3}))
    eventually(lost.fulfilled.is_set)
    maintenance.send(Counts({("b", "done", "ok"): 1}))
    eventually(lambda: ("b", "done", "ok") in counters(stack, rows.schema))
    assert counters(stack, rows.schema) == {
        ("a", "done", "ok"): 3, ("b", "done", "ok"): 1, ("card", "in_doubt", "shutdown"): 1,
    }  # fmt: skip
