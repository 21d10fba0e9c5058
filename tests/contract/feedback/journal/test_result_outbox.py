"""Result records in the journal, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest

from feedback.journal.result_outbox import (
    ResultRecord,
    StoredResult,
    add_results,
    remove_results,
    result_message,
    take_results,
)
from stack import Stack
from tests.support.waiting import eventually

Connection = psycopg.Connection[Any]


@pytest.fixture
def database(stack: Stack, schema: str) -> Iterator[Connection]:
    """Closed before its schema is dropped, as it may hold locks."""
    with psycopg.connect(stack.database) as connection:
        yield connection


@pytest.fixture
def other(stack: Stack, schema: str) -> Iterator[Connection]:
    with psycopg.connect(stack.database, options="-c statement_timeout=10s") as connection:
        yield connection


def record(number: int, **fields: Any) -> ResultRecord:
    values = {"state": "done", "code": "ok", "result": b'{"n":%d}' % number, **fields}
    return ResultRecord(f"r-{number}", "order.place", **values)


def add(connection: Connection, schema: str, *records: ResultRecord) -> int:
    with connection.transaction(), connection.cursor() as cursor:
        return add_results(cursor, schema, records)


def ids(taken: list[StoredResult]) -> list[str]:
    return [stored.record.request_id for stored in taken]


def test_records_come_back_oldest_first(database: Connection, schema: str) -> None:
    records = [record(n) for n in range(5)]
    add(database, schema, *records)

    taken = take_results(database.cursor(), schema, 3)

    assert [stored.record.request_id for stored in taken] == ["r-0", "r-1", "r-2"]
    assert [orjson.loads(stored.record.result or b"") for stored in taken] == [
        {"n": 0}, {"n": 1}, {"n": 2},
    ]  # fmt: skip
    times = [stored.at for stored in taken]
    assert times == sorted(times)
    assert all(str(at.tzinfo) == "UTC" for at in times)


def test_large_results_are_taken_a_few_at_a_time(database: Connection, schema: str) -> None:
    """Hundreds that waited for the brokers would be gigabytes in memory."""
    large = b'"%s"' % (b"x" * 998)
    add(database, schema, *(record(n, result=large) for n in range(4)), record(4, result=None))
    assert ids(take_results(database.cursor(), schema, 9, 1500)) == ["r-0", "r-1"]
    assert ids(take_results(database.cursor(), schema, 1, 1)) == ["r-0"]
    assert ids(take_results(database.cursor(), schema, 9, 10**6)) == [f"r-{n}" for n in range(5)]


def test_a_record_may_have_no_result(database: Connection, schema: str) -> None:
    add(database, schema, record(1, state="rejected", code="no_funds", result=None))

    [stored] = take_results(database.cursor(), schema, 10)

    assert stored.record == record(1, state="rejected", code="no_funds", result=None)


def test_what_is_not_settled_is_left_out(database: Connection, schema: str) -> None:
    states = ["waiting", "running", "accepted", "failed", "in_doubt", "dead", "cancelled"]
    states += ["superseded", "rejected", "done"]

    written = add(database, schema, *(record(n, state=s) for n, s in enumerate(states)))

    taken = take_results(database.cursor(), schema, 100)
    assert written == 7
    assert [stored.record.state for stored in taken] == states[3:]


def test_no_record_needs_no_statement(database: Connection) -> None:
    assert add(database, "no_such_schema", record(1, state="waiting")) == 0


def test_a_rolled_back_transaction_leaves_no_record(database: Connection, schema: str) -> None:
    add_results(database.cursor(), schema, [record(1)])
    database.rollback()

    assert take_results(database.cursor(), schema, 10) == []


def test_two_takers_get_distinct_records(
    database: Connection, other: Connection, schema: str
) -> None:
    add(database, schema, *(record(n) for n in range(10)))

    first = take_results(database.cursor(), schema, 6)
    second = take_results(other.cursor(), schema, 6)

    assert ids(first) == [f"r-{n}" for n in range(6)]
    assert ids(second) == [f"r-{n}" for n in range(6, 10)]


def test_a_taker_that_dies_leaves_its_records(
    database: Connection, other: Connection, schema: str
) -> None:
    add(database, schema, *(record(n) for n in range(4)))
    cursor = other.cursor()
    taken = take_results(cursor, schema, 4)
    remove_results(cursor, schema, [stored.number for stored in taken[:2]])

    other.close()  # sent, but never committed: they are sent again

    again = eventually(lambda: take_results(database.cursor(), schema, 10))
    assert ids(again) == ["r-0", "r-1", "r-2", "r-3"]


def test_removed_records_are_gone(database: Connection, schema: str) -> None:
    add(database, schema, *(record(n) for n in range(4)))
    cursor = database.cursor()
    taken = take_results(cursor, schema, 4)
    remove_results(cursor, schema, [taken[0].number, taken[2].number])
    database.commit()

    assert ids(take_results(cursor, schema, 10)) == ["r-1", "r-3"]


def test_numbers_stay_exact_on_their_way(database: Connection, schema: str) -> None:
    result = b'{"big":123456789012345678901234567890,"cents":0.10,"text":"\\u00e9"}'
    add(database, schema, record(1, result=result))

    [stored] = take_results(database.cursor(), schema, 10)
    value = result_message(stored).value

    assert b"123456789012345678901234567890" in value
    assert b"0.10" in value
    assert "é".encode() in value


def test_of_two_records_of_one_request_the_later_has_the_later_time(
    database: Connection, other: Connection, schema: str
) -> None:
    database.execute("SELECT 1")  # its transaction begins first and writes last
    add(other, schema, record(1, state="failed", code="timeout", result=None))
    add_results(database.cursor(), schema, [record(1)])
    database.commit()

    taken = take_results(database.cursor(), schema, 10)

    assert [stored.record.state for stored in taken] == ["failed", "done"]
    assert taken[0].at < taken[1].at


def test_records_whose_results_grow_as_text_are_read_a_few_at_a_time(
    database: Connection, schema: str
) -> None:
    """Stored, each has 27 kB, and as text 30 MB: all at once they outlast any time-out."""
    result = orjson.dumps([1e-300] * 100_000)
    add(database, schema, *(record(n, result=result) for n in range(30)))
    spied = Spy(database)
    assert ids(take_results(spied, schema, 100)) == ["r-0"]
    assert spied.read < 4


class Spy(psycopg.Cursor[Any]):
    """Counts the results that are made text."""

    read = 0

    def fetchall(self) -> list[Any]:
        rows = super().fetchall()
        self.read += sum(len(row) > 2 for row in rows)
        return rows
