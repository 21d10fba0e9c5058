"""What is told of the requests that run."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

from feedback.contract.record import Record
from processing.ipc.progress import Running
from processing.pool.running import MOST_SHOWN, request_id, running_requests


def record(offset: int) -> Record:
    return ("t", 0, offset, 0, None, b"{}", [("ce_id", f"r{offset}".encode())], "a.b", None)


AT = datetime(2030, 5, 17, 12, 30, tzinfo=UTC)


def test_the_request_under_the_slot_is_named() -> None:
    chunk = SimpleNamespace(number=7, records=[record(n) for n in range(3)])
    looks = {0: Running(7, 1, None, 90.0), 1: None, 2: Running(8, None, None, 95.0)}

    (row,) = running_requests({0: [chunk], 2: []}, looks, 100.0, AT)

    assert (row["request_id"], row["worker"]) == ("r1", 0)
    assert row["since"] == "2030-05-17T12:29:50.000Z"
    assert row["record"].endswith("/1")


def test_of_two_ids_the_last_one_counts_as_in_the_envelope() -> None:
    headers = [("ce_id", b"first"), ("ce_id", b"last")]
    assert request_id(("t", 0, 1, 0, None, b"{}", headers, "a.b", None)) == "last"


def test_a_chunk_that_is_gone_by_now_is_left_out() -> None:
    chunk = SimpleNamespace(number=6, records=[record(0)])

    assert running_requests({0: [chunk]}, {0: Running(7, 0, None, 90.0)}, 100.0, AT) == []


def test_calls_stand_beside_what_runs_alone_and_the_oldest_of_too_many_are_named() -> None:
    chunks = [SimpleNamespace(number=n, records=[record(n)]) for n in range(MOST_SHOWN + 5)]
    seats = {1: {n: Running(n, 0, None, float(n)) for n in range(MOST_SHOWN + 5)}}
    alone = SimpleNamespace(number=9, records=[record(9000)])
    looks = {0: Running(9, 0, None, 2.5), 1: None}

    rows = running_requests({0: [alone], 1: chunks}, looks, 9000.0, AT, seats)

    names = [row["request_id"] for row in rows]
    assert names[:5] == ["r0", "r1", "r2", "r9000", "r3"]
    assert len(names) == MOST_SHOWN
    few = {1: {0: seats[1][0], 7: None}}
    rows = running_requests({0: [alone], 1: chunks}, looks, 9000.0, AT, few)
    assert {(row["worker"], row["request_id"]) for row in rows} == {(0, "r9000"), (1, "r0")}


def test_a_call_that_waits_for_the_event_loop_is_named() -> None:
    chunk = SimpleNamespace(number=7, records=[record(0)])

    (row,) = running_requests({0: [chunk]}, {}, 9.0, AT, {0: {3: Running(7, None, 9.0, 1.0)}})

    assert row["request_id"] == "r0"
