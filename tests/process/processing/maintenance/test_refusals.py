from __future__ import annotations

from pathlib import Path

import orjson
import psycopg
import pytest

from feedback.status.redis_store import RedisStatusStore
from processing.ipc.frames import DatabaseState, PartAnswered, ProbeDatabase, Refuse, Stop
from stack import Stack
from tests.support.maintenance import StartMaintenance, counters, record
from tests.support.private_valkey import PrivateValkey
from tests.support.proxy import Proxy
from tests.support.waiting import eventually


def letters(stack: Stack, schema: str) -> list[tuple[object, ...]]:
    with psycopg.connect(stack.database) as database:
        return database.execute(
            f"SELECT reason, request_id, detail FROM {schema}.dead_letters ORDER BY kafka_offset"
        ).fetchall()


def test_refused_requests_are_answered_and_counted(
    start: StartMaintenance, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()

    maintenance.send(Refuse(5, "database_unavailable", [record(1), record(2)], []))

    assert maintenance.wait_for(PartAnswered)[:2] == (5, 2)
    found = eventually(lambda: None not in (got := statuses.read(["r-1", "r-2"])) and got)
    assert {(s.state, s.code) for s in found if s} == {("failed", "database_unavailable")}
    assert maintenance.stop() == 0
    assert counters(stack, schema) == {("payment.create", "failed", "database_unavailable"): 2}


def test_what_nobody_sends_again_becomes_a_dead_letter(
    start: StartMaintenance, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    nameless = record(7, headers=[("ce_type", b"payment.create")])
    typeless = ("requests", 0, 8, 1_700_000_000_000, None, b"{}", [("ce_id", b"m-8")], None, None)
    foreign = ("theirs", 0, 9, 1_700_000_000_000, None, b"{}", [], None, None)

    maintenance.send(Refuse(0, "shutdown", [nameless, record(1), typeless, foreign], ["theirs"]))

    assert maintenance.wait_for(PartAnswered, 2).part == 0
    assert sum(frame.answered for frame in maintenance.received(PartAnswered)) == 4
    found = letters(stack, schema)
    assert [row[:2] for row in found] == [
        ("malformed", None), ("malformed", "m-8"), ("malformed", None),
    ]  # fmt: skip
    assert "undecoded" in str(found[2][2])
    told = eventually(lambda: statuses.read(["m-8"])[0])
    assert (told.state, told.code) == ("failed", "malformed")
    assert maintenance.stop() == 0
    assert counters(stack, schema)["payment.create", "dead_letter", "malformed"] == 1


def test_dead_letters_wait_for_the_database(
    start: StartMaintenance, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through)
    maintenance.ready()
    proxy.cut()
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up
    malformed = record(7, headers=[("ce_type", b"payment.create")])

    maintenance.send(Refuse(3, "database_unavailable", [malformed, record(1)], []))
    assert maintenance.wait_for(PartAnswered)[:2] == (3, 1)
    proxy.mend()

    assert maintenance.wait_for(PartAnswered, 2)[:2] == (3, 1)
    assert [row[0] for row in letters(stack, schema)] == ["malformed"]


def test_dead_letters_that_are_lost_at_the_end_are_named(
    start: StartMaintenance,
    schema: str,
    proxy: Proxy,
    through: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    maintenance = start(schema=schema, database_url=through)
    maintenance.ready()
    proxy.cut()
    maintenance.send(ProbeDatabase())
    assert not maintenance.wait_for(DatabaseState, 1).up
    malformed = record(7, headers=[("ce_type", b"payment.create")])
    maintenance.send(Refuse(0, "shutdown", [malformed], []))
    maintenance.wait_for(PartAnswered)

    assert maintenance.stop() == 0
    text = capfd.readouterr()
    (line,) = [li for li in (text.out + text.err).splitlines() if "letter is not written" in li]
    assert orjson.loads(line)["place"] == "requests/0/7"


def test_refusals_are_answered_while_the_database_hangs(
    start: StartMaintenance, schema: str, statuses: RedisStatusStore, proxy: Proxy, through: str
) -> None:
    maintenance = start(schema=schema, database_url=through, hung_after=3600.0)
    maintenance.ready()
    proxy.hang()
    maintenance.send(ProbeDatabase())

    maintenance.send(Refuse(0, "shutdown", [record(1)], []))

    assert maintenance.wait_for(PartAnswered).answered == 1
    eventually(lambda: statuses.read(["r-1"])[0] is not None)


def test_statuses_that_wait_are_sent_before_the_end(
    start: StartMaintenance, schema: str, prefix: str, tmp_path: Path
) -> None:
    valkey = PrivateValkey(tmp_path)
    store = RedisStatusStore(valkey.url, prefix, timeout=30.0)
    try:
        maintenance = start(schema=schema, redis_url=valkey.url)
        maintenance.ready()
        valkey.pause()
        for first in range(0, 3000, 500):
            some = [record(n) for n in range(first, first + 500)]
            maintenance.send(Refuse(first, "shutdown", some, []))
        maintenance.wait_for(PartAnswered, 6)
        maintenance.send(Stop())
        valkey.resume()

        assert maintenance.child.wait(60)
        assert maintenance.child.cause == "exit code 0"
        assert None not in store.read([f"r-{n}" for n in range(3000)])
    finally:
        store.close()
        valkey.stop()


def test_a_dead_letter_that_the_journal_refuses_is_answered_for_and_not_counted(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    with psycopg.connect(stack.database) as database:
        database.execute(f"ALTER TABLE {schema}.dead_letters ADD CHECK (kafka_offset <> 1)")
    broken = [
        ("requests", 0, number, 0, None, b"{}", [("ce_type", b"a")], "a", None)
        for number in range(3)
    ]

    maintenance.send(Refuse(0, "shutdown", broken, []))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 3)
    eventually(lambda: counters(stack, schema) == {("a", "dead_letter", "malformed"): 2})
    assert len(letters(stack, schema)) == 2


def test_a_dead_letter_from_the_far_future_stops_no_other(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    micros = 1_700_000_000_000_000
    pairs: list[tuple[str, bytes | None]] = [("ce_type", b"a"), ("x\0y", b"1")]
    broken = [
        ("requests", 0, number, time, None, b"{}", pairs, "a", None)
        for number, time in enumerate((micros, 1_700_000_000_000, -1, 2**63 - 1))
    ]

    maintenance.send(Refuse(0, "shutdown", broken, []))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 4)
    assert len(letters(stack, schema)) == 4
    assert maintenance.received(DatabaseState) == []
