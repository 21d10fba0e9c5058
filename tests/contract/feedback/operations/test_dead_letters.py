"""Dead letters on real PostgreSQL: the list of both kinds, retries of messages, files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import psycopg
import pytest

from feedback.operations.dead_letter_actions import drop_letters, resend_letter, retry_letter
from feedback.operations.dead_letter_files import Imported, export_lines, import_lines
from feedback.operations.dead_letters import (
    DeadLetterRef,
    kinds_of,
    list_dead,
    list_dead_heads,
    select_dead,
    show_dead,
)
from feedback.operations.dead_message import DeadMessage
from feedback.operations.explanations import Refusal
from feedback.operations.inspection import latest_changes
from feedback.operations.request_actions import By, Moved
from tests.support.dead_letters import AT
from tests.support.journal import Journal

BY = By("ann", "header repaired")


def retried(journal: Journal, number: int, **options: Any) -> Moved:
    moved = retry_letter(journal.connection, number, BY, schema=journal.schema, **options)
    assert isinstance(moved, Moved), moved
    return moved


def refused(journal: Journal, number: int, **options: Any) -> str:
    answer = retry_letter(journal.connection, number, BY, schema=journal.schema, **options)
    assert isinstance(answer, Refusal)
    assert journal.rows("SELECT FROM {s}.dead_letters WHERE retried_at IS NOT NULL") == []
    return answer.reason


def noted(journal: Journal) -> list[tuple[Any, ...]]:
    """What was kept of who did what with messages."""
    rows = latest_changes(journal.connection, 10, schema=journal.schema)
    return [
        (row["action"], row["name"], row["type"], row["who"], row["why"])
        for row in rows
        if row["what"] == "dead_letter"
    ]


# The list


def test_requests_and_messages_are_one_list(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"ce_type": "payment.create"}, at=AT)
    journal.put("r", finished_at=AT + timedelta(seconds=1))
    journal.put("done", "done")

    rows = list_dead(journal.connection, {}, 10, schema=journal.schema)

    assert [(r["kind"], r["id"], r["request_id"]) for r in rows] == [
        ("request", None, "r"),
        ("message", number, None),
    ]
    assert [r["type"] for r in rows] == ["payment.create", "payment.create"]
    assert [r["reason"] for r in rows] == ["handler_error", "malformed"]


@pytest.mark.parametrize(
    "filters,found",
    [
        ({"kind": "message"}, {"m"}),
        ({"kind": "request"}, {"r", "s"}),
        ({"type": "payment.*"}, {"m", "r"}),
        ({"type": "payment.create"}, {"m", "r"}),
        ({"type": "payment_*"}, set()),
        ({"types": ["payment.*", "x"]}, {"m", "r"}),
        ({"types": ["order.*"]}, {"s"}),
        ({"types": ["payment.*"], "type": "order.*"}, set()),
        ({"types": []}, set()),
        ({"reason": "malformed"}, {"m"}),
        ({"reason": "timeout"}, {"s"}),
        ({"since": AT + timedelta(seconds=5)}, {"s"}),
        ({"search": "BOOM"}, {"r", "s"}),
        ({"search": "ce_id is"}, {"m"}),
        ({"search": '"shop": 7'}, {"m"}),
        ({"search": "payment.cr"}, {"m", "r"}),
        ({"search": "100%"}, set()),
        ({"kind": "request", "type": "order*", "search": "boom"}, {"s"}),
    ],
)
def test_the_list_is_filtered(
    journal: Journal, letter: Callable[..., int], filters: dict[str, Any], found: set[str]
) -> None:
    letter({"ce_type": "payment.create", "x": None}, at=AT, payload=b'{"shop": 7}\xff')
    letter(None, at=AT, headers=None, payload=None, reason="conflict", retried_at=AT)
    journal.put("r", finished_at=AT)
    journal.put("s", type="order.make", code="timeout")

    rows = list_dead(journal.connection, filters, 10, schema=journal.schema)
    places = select_dead(journal.connection, filters, schema=journal.schema)

    assert {r["request_id"] or "m" for r in rows} == found
    assert len(places) == len(found)


def test_lists_are_bounded(journal: Journal, letter: Callable[..., int]) -> None:
    given = {"schema": journal.schema}
    letter({"ce_type": "a.b"}, at=AT + timedelta(seconds=2), payload=b"x" * 100)
    journal.put("r", finished_at=AT + timedelta(seconds=1), payload=b"y" * 100)
    letter(None, at=AT, headers=None, payload=None)

    rows = list_dead(journal.connection, {}, 10, most_bytes=150, **given)
    assert [(r["payload"], r["payload_bytes"]) for r in rows] == [
        (b"x" * 100, 100), (None, 100), (None, None),
    ]  # fmt: skip
    # So are very many headers, of which a type is read all the same.
    many = orjson.dumps([["ce_type", "YS5i"], *[["", ""]] * 99_990]).decode()
    letter(at=AT + timedelta(seconds=3), headers=many)
    rows = list_dead(journal.connection, {}, 1, most_bytes=200_000, **given)
    assert [(r["type"], r["headers"]) for r in rows] == [("a.b", None)]
    journal.connection.execute(
        f"DELETE FROM {journal.schema}.dead_letters WHERE id = {rows[0]['id']}".encode()
    )
    # Others that stand before are none of his page.
    rows = list_dead(journal.connection, {"types": ["payment.*"]}, 1, **given)
    heads = list_dead_heads(journal.connection, {"types": ["payment.*"]}, 1, **given)
    assert [r["request_id"] for r in (*rows, *heads)] == ["r", "r"]
    heads = list_dead_heads(journal.connection, {}, 2, **given)
    assert [(r["kind"], r["type"]) for r in heads] == [
        ("message", "a.b"), ("request", "payment.create"),
    ]  # fmt: skip
    assert not heads[0].keys() & {"headers", "payload"}
    assert len(select_dead(journal.connection, {}, most=2, **given)) == 2


def test_a_name_may_be_a_number_and_an_id(journal: Journal, letter: Callable[..., int]) -> None:
    number = str(letter())
    journal.put(number)
    journal.put("r")

    def kinds(name: str) -> list[str]:
        return sorted(kinds_of(journal.connection, name, schema=journal.schema))

    assert kinds(number) == ["message", "request"]
    assert kinds("r") == ["request"]
    assert kinds("99999999999999999999") == []


def test_a_letter_is_shown_whole(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"ce_type": "a", "x": None})

    row = show_dead(
        journal.connection, DeadLetterRef("message", str(number)), schema=journal.schema
    )

    assert row is not None
    assert (row["kind"], row["type"], row["payload"]) == ("message", "a", b'{"n": 1}')
    assert row["headers"] == [["ce_type", "YQ=="], ["x", None]]


# Retry


def test_a_message_without_an_id_becomes_a_request(
    journal: Journal, letter: Callable[..., int]
) -> None:
    number = letter({"ce_type": "payment.create", "ce_reference": "o-1", "x-tenant": "7"})

    moved = retried(journal, number, id="new-1")

    row = journal.get("new-1")
    assert (row["state"], row["code"], row["attempt"]) == ("waiting", "retried", 1)
    assert (row["type"], row["key"], row["payload"]) == ("payment.create", b"k-1", b'{"n": 1}')
    assert (row["reference"], row["produced_at"]) == ("o-1", AT)
    assert row["due_at"] == moved.due_at
    names = [name for name, _ in row["headers"]]
    assert names == ["ce_id", "ce_type", "ce_reference", "x-tenant"]
    (kept,) = journal.rows("SELECT retried_at, retried_as FROM {s}.dead_letters")
    assert kept["retried_at"] is not None
    assert kept["retried_as"] == "new-1"
    (noted,) = journal.rows("SELECT * FROM {s}.transitions")
    assert (noted["request_id"], noted["who"], noted["from_state"]) == (
        "new-1", "ann", "dead_letter",
    )  # fmt: skip
    assert moved.status().value.startswith(b'{"v":"000023"'), "above the status of the malformed"


def test_a_retried_message_wakes_all_instances(
    journal: Journal, letter: Callable[..., int]
) -> None:
    number = letter({"ce_type": "a"})
    with psycopg.connect(journal.url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{journal.schema}_due"')
        retried(journal, number, id="new-1")
        assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1


def test_it_is_retried_once(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"ce_type": "a"})
    retried(journal, number, id="new-1")

    again = retry_letter(journal.connection, number, BY, id="new-2", schema=journal.schema)

    assert isinstance(again, Refusal)
    assert "was retried at 20" in again.reason
    assert "as request new-1" in again.reason


def test_type_and_id_can_both_be_given(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"ce_id": "bad\nid", "ce_type": ""})

    retried(journal, number, id="new-1", type="b")

    assert journal.get("new-1")["type"] == "b"


def test_a_conflict_needs_an_id_of_its_own(journal: Journal, letter: Callable[..., int]) -> None:
    journal.put("r", "done")
    number = letter({"ce_id": "r", "ce_type": "a"}, reason="conflict", request_id="r")

    assert "its id belongs to another request" in refused(journal, number)
    assert "'r' is taken" in refused(journal, number, id="r")
    assert retried(journal, number, id="r-2").id == "r-2"


def test_a_malformed_one_keeps_its_id_where_that_is_free(
    journal: Journal, letter: Callable[..., int]
) -> None:
    number = letter({"ce_id": "r", "ce_type": ""}, request_id="r")

    assert retried(journal, number, type="a").id == "r"


@pytest.mark.parametrize(
    "headers,columns,reason",
    [
        ({"ce_type": "a"}, {}, "header ce_id is missing"),
        ({"ce_id": "r"}, {}, "header ce_type is missing"),
        ({"ce_id": "r", "ce_type": "a", "ce_time": "noon"}, {}, "ce_time"),
        ({"ce_id": "r", "ce_type": "a"}, {"payload": None}, "has no payload"),
        (
            {"ce_id": "r", "ce_type": "a", "ce_expirytime": "2020-01-01T00:00:00Z"},
            {},
            "ce_expirytime is over",
        ),
        ({"content-type": "application/cloudevents+json"}, {"payload": b"{oops"}, "not JSON"),
    ],
)
def test_what_is_still_no_request_says_why(
    journal: Journal,
    letter: Callable[..., int],
    headers: dict[str, str],
    columns: dict[str, Any],
    reason: str,
) -> None:
    assert reason in refused(journal, letter(headers, **columns))
    assert journal.rows("SELECT FROM {s}.requests") == []


def test_a_structured_event_is_stored_as_a_binary_message(
    journal: Journal, letter: Callable[..., int]
) -> None:
    event = {"specversion": "1.0", "type": "payment.create", "data": {"n": 1}}
    number = letter({"content-type": "application/cloudevents+json"}, payload=orjson.dumps(event))
    assert "attribute id is missing" in refused(journal, number)

    retried(journal, number, id="new-1")

    row = journal.get("new-1")
    assert (row["type"], row["payload"]) == ("payment.create", b'{"n":1}')
    assert "ce_specversion" in [name for name, _ in row["headers"]]


def test_its_own_time_is_kept(journal: Journal, letter: Callable[..., int]) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    number = letter({"ce_id": "r", "ce_type": "a", "ce_notbefore": later.isoformat()})

    retried(journal, number)

    row = journal.get("r")
    assert row["not_before"] == row["due_at"] == later


def test_of_two_who_retry_a_message_one_does(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"ce_type": "a"})
    with psycopg.connect(journal.url) as first:
        first.execute("SELECT 1")  # in a transaction that ends after the retry
        assert isinstance(retry_letter(first, number, BY, id="one", schema=journal.schema), Moved)
        rival = journal.rival(
            lambda c: retry_letter(c, number, BY, id="two", schema=journal.schema)
        )

    answer = rival.result()
    assert isinstance(answer, Refusal)
    assert "as request one" in answer.reason
    assert [r["id"] for r in journal.rows("SELECT id FROM {s}.requests")] == ["one"]


def test_a_request_of_that_id_that_arrives_meanwhile_wins(
    journal: Journal, letter: Callable[..., int]
) -> None:
    number = letter({"ce_id": "r", "ce_type": "a"})
    arrival = """INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition,
        kafka_offset, produced_at) VALUES ('r', 'a', 'done', 'ok', 'none', 't', 0, 1, now())"""
    with journal.holding(arrival):
        rival = journal.rival(lambda c: retry_letter(c, number, BY, schema=journal.schema))

    answer = rival.result()
    assert isinstance(answer, Refusal)
    assert "is taken" in answer.reason
    assert journal.get("r")["state"] == "done"


def test_the_message_itself_is_sent_again(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter({"a": "b", "c": None})
    sent: list[DeadMessage] = []

    given = {"schema": journal.schema}
    assert resend_letter(journal.connection, number, sent.append, BY, **given) is None

    (message,) = sent
    assert (message.topic, message.key, message.value) == ("requests", b"k-1", b'{"n": 1}')
    assert message.headers == [("a", b"b"), ("c", None)]
    assert message.produced_at == AT
    again = resend_letter(journal.connection, number, sent.append, BY, **given)
    assert isinstance(again, Refusal)
    assert len(sent) == 1
    assert noted(journal) == [("resend", str(number), None, *BY)]


def test_one_that_is_not_sent_stays(journal: Journal, letter: Callable[..., int]) -> None:
    number = letter()

    def fail(_: DeadMessage) -> None:
        raise OSError("broker away")

    with pytest.raises(OSError):
        resend_letter(journal.connection, number, fail, BY, schema=journal.schema)

    assert noted(journal) == []
    assert len(list_dead(journal.connection, {}, 10, schema=journal.schema)) == 1


def test_messages_are_dropped_unless_they_were_retried(
    journal: Journal, letter: Callable[..., int]
) -> None:
    first, second = letter({"ce_type": "a\0b"}), letter({"ce_type": "a"})
    retried(journal, second, id="new-1")

    missed = drop_letters(journal.connection, [first, second, 999], BY, schema=journal.schema)

    assert [m.id for m in missed] == [str(second), "999"]
    assert len(journal.rows("SELECT FROM {s}.dead_letters")) == 1
    assert noted(journal) == [("drop", str(first), "a\ufffdb", *BY)]


# Files


def exported(journal: Journal) -> list[bytes]:
    places = select_dead(journal.connection, {}, schema=journal.schema)
    return list(export_lines(journal.connection, places, schema=journal.schema))


def imported(journal: Journal, lines: list[bytes]) -> Imported:
    parts = list(import_lines(journal.connection, lines, schema=journal.schema))
    return Imported(
        sum(p.added for p in parts),
        sum(p.there for p in parts),
        [b for p in parts for b in p.broken],
    )


def everything(journal: Journal) -> list[list[dict[str, Any]]]:
    parts = [
        journal.rows("SELECT * FROM {s}.requests ORDER BY id"),
        journal.rows("SELECT * FROM {s}.attempts ORDER BY request_id, run"),
        journal.rows("SELECT * FROM {s}.dead_letters ORDER BY kafka_offset"),
    ]
    return [[{k: v for k, v in row.items() if k != "id" or "type" in row} for row in p]
            for p in parts]  # fmt: skip


def fill(journal: Journal, letter: Callable[..., int]) -> None:
    letter({"ce_type": "a", "x": None}, payload=b"\xff\x00", request_id="m")
    letter(None, headers=None, payload=None, key=None, reason="conflict")
    journal.put(
        "r", fingerprint=b"\1" * 16, key=b"\xff", reference="o", status_ttl=5,
        own_fingerprint=True, coalesce_key="o", reason="later", not_before=None, asked_by="first",
        headers='[["ce_replyto", "Yw=="]]',
    )  # fmt: skip
    for run in (1, 2, 3):
        journal.insert(
            "attempts", request_id="r", run=run, code="timeout", error="slow", started_at=AT,
            ended_at=AT, traceback="in pay",
        )  # fmt: skip


def test_what_was_exported_is_imported_as_it_was(
    journal: Journal, letter: Callable[..., int]
) -> None:
    fill(journal, letter)
    before = everything(journal)
    lines = exported(journal)
    assert len(lines) == 3
    journal.run("TRUNCATE {s}.requests, {s}.attempts, {s}.dead_letters")

    assert imported(journal, lines) == (3, 0, [])

    assert everything(journal) == before


def test_what_an_older_version_exported_is_found_by_its_reference(journal: Journal) -> None:
    journal.put("r", coalesce_key="o")
    lines = exported(journal)
    journal.run("TRUNCATE {s}.requests")
    imported(journal, lines)
    assert journal.rows("SELECT reference FROM {s}.requests") == [{"reference": "o"}]


def test_nothing_is_imported_twice(journal: Journal, letter: Callable[..., int]) -> None:
    fill(journal, letter)
    lines = exported(journal)
    retried(journal, 1, id="new-1", type="a")
    assert imported(journal, [*lines, *lines]) == (0, 6, [])


BROKEN = [
    (b"{oops", "Invalid JSON"),
    (b"[]", "this is no JSON object"),
    (b"{}", "kind is missing: message or request"),
    (b'{"kind": "thing"}', "kind has to be message or request"),
    (b'{"kind": "request", "id": "x"}', "topic: Field required"),
    (b"\xff\xfe", ""),
]


def test_broken_lines_are_named_and_the_rest_imported(
    journal: Journal, letter: Callable[..., int]
) -> None:
    fill(journal, letter)
    lines = exported(journal)
    journal.run("TRUNCATE {s}.requests, {s}.attempts, {s}.dead_letters")
    message = orjson.loads(next(line for line in lines if b'"kind":"message"' in line))
    wrong = [
        (orjson.dumps(message | {"payload": "?"}), "payload: this is not base64"),
        (orjson.dumps(message | {"detail": "a\0b"}), "detail: it holds a character"),
        (orjson.dumps(message | {"at": "noon"}), "at: "),
        (orjson.dumps(message | {"reason": "boredom"}), "reason: it has to be 'malformed' or"),
        (orjson.dumps(message | {"partition": 2**40}), "partition"),
        (orjson.dumps(message | {"headers": [["a"]]}), "headers.0"),
        *BROKEN,
    ]

    mixed = [b"\n", lines[0], *(line for line, _ in wrong), b"  ", *lines[1:]]
    done = imported(journal, mixed)

    assert (done.added, done.there) == (3, 0)
    assert [b.number for b in done.broken] == list(range(3, 3 + len(wrong)))
    for problem, (_, text) in zip(done.broken, wrong, strict=True):
        assert text in problem.reason


def test_a_line_that_only_postgresql_refuses_is_named(
    journal: Journal, letter: Callable[..., int]
) -> None:
    fill(journal, letter)
    lines = exported(journal)
    journal.run("TRUNCATE {s}.requests, {s}.attempts, {s}.dead_letters")
    journal.run("ALTER TABLE {s}.requests ADD CHECK (id <> 'r')")

    done = imported(journal, lines)

    assert done.added == 2
    (problem,) = done.broken
    assert "PostgreSQL refused it" in problem.reason
    assert problem.number == 1 + next(i for i, line in enumerate(lines) if b'"request"' in line)
