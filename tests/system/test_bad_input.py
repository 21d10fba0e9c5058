"""Messages that no handler should see, from the producer's side of the whole service."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

Headers = dict[str, bytes | None]


INVALID = ("rejected", "invalid_payload")
UNREADABLE = ("failed", "malformed")

NAMED: dict[str, tuple[Headers, bytes | None, tuple[str, str]]] = {
    "null-value": ({"ce_type": b"pure"}, None, INVALID),
    "not-json": ({"ce_type": b"pure"}, b"{not", INVALID),
    "json-not-utf8": ({"ce_type": b"pure"}, b'{"n": "\xff"}', INVALID),
    "wrong-shape": ({"ce_type": b"shaped"}, b'{"amount": "much"}', INVALID),
    "right-shape": ({"ce_type": b"shaped"}, b'{"amount": 7}', ("done", "ok")),
    "too-large": ({"ce_type": b"pure"}, b'"' + b"x" * 5000 + b'"', INVALID),
    "unknown-type": ({"ce_type": b"nobody"}, b"{}", ("waiting", "unknown_type")),
    "expired": (
        {"ce_type": b"pure", "ce_expirytime": b"2001-01-01T00:00:00Z"},
        b'{"n": 1}',
        ("rejected", "expired"),
    ),
    "no-type": ({}, b"{}", UNREADABLE),
    "empty-type": ({"ce_type": b""}, b"{}", UNREADABLE),
    "type-not-utf8": ({"ce_type": b"\xff"}, b"{}", UNREADABLE),
    "header-not-utf8": ({"ce_type": b"pure", "traceparent": b"\xff"}, b'{"n": 1}', UNREADABLE),
    "bad-time": ({"ce_type": b"pure", "ce_expirytime": b"soon"}, b'{"n": 1}', UNREADABLE),
    "foreign-header": ({"ce_type": b"pure", "x-note": b"\xff"}, b'{"n": 2}', ("done", "ok")),
}
"""Id: its other headers, its payload, what its producer reads."""

NAMELESS: list[tuple[Headers, bytes | None]] = [
    ({"ce_type": b"pure"}, b"{}"),
    ({"ce_id": b"", "ce_type": b"pure"}, b"{}"),
    ({"ce_id": None, "ce_type": b"pure"}, b"{}"),
    ({"ce_id": b"x" * 201, "ce_type": b"pure"}, b"{}"),
    ({"ce_id": b"a\nb", "ce_type": b"pure"}, b"{}"),
    ({"ce_id": b"\xff", "ce_type": b"pure"}, b"{}"),
    ({}, b"no headers"),
    ({}, None),
]
"""Headers and payloads of messages whose id nobody can read; a tombstone is the last."""


def backlog(bench: Bench) -> tuple[list[str], list[str]]:
    """
    Messages that nobody can read among the first of many quick requests; the ids of both.

    All in one partition: of several the last is read when the others' are done, however soon what
    stands first in it is dealt with.
    """
    producer = Producer({"bootstrap.servers": bench.stack.kafka, "linger.ms": 20})
    unread = [f"unread-{n}" for n in range(100)]
    flood = [f"flood-{n}" for n in range(3000)]
    payload = f'{{"table": "{bench.table}"}}'
    for number, name in enumerate(flood):
        if number % 10 == 0 and number < 10 * len(unread):
            headers: list[tuple[str, str | bytes | None]] = [("ce_id", unread[number // 10])]
            producer.produce(bench.topic, b"{}", partition=0, headers=headers)
        headers = [("ce_id", name), ("ce_type", "effect")]
        producer.produce(bench.topic, payload, partition=0, headers=headers)
    assert producer.flush(60) == 0
    return unread, flood


def test_each_bad_message_has_its_end_and_its_neighbours_are_done(bench: Bench) -> None:
    raw = Raw(bench)
    unread, flood = backlog(bench)
    bench.client.submit("effect", {"table": bench.table}, request_id="first")
    bench.client.flush()
    neighbours = ["first", *flood]
    for position, (headers, value) in enumerate(NAMELESS):
        raw.send(f"key-{position}", headers, value)
        neighbours.append(bench.client.submit("effect", {"table": bench.table}))
        bench.client.flush()
    for name, (headers, value, _) in NAMED.items():
        raw.send(None, {"ce_id": name.encode(), **headers}, value)
        neighbours.append(bench.client.submit("effect", {"table": bench.table}))
        bench.client.flush()

    instance = bench.start(ONCEPOOL_APP="tests.support.shaped_app:app", ONCEPOOL_MAX_PAYLOAD="4096")
    seen = {}
    for name in NAMED:
        seen[name] = bench.seen(name)
    assert seen == {name: end for name, (_, _, end) in NAMED.items()}
    eventually(lambda: bench.done() == len(neighbours) + 1, WAIT)  # and `right-shape`

    letters = f"SELECT request_id, reason FROM {bench.schema}.dead_letters"
    unreadable = [name for name, (_, _, end) in NAMED.items() if end == UNREADABLE]
    expected = sorted([*unreadable, *unread, *[""] * len(NAMELESS)])
    eventually(lambda: sorted(row[0] or "" for row in bench.query(letters)) == expected, WAIT)
    assert {row[1] for row in bench.query(letters)} == {"malformed"}
    effects = [row[0] for row in bench.query(f"SELECT id FROM {bench.table}")]
    assert sorted(effects) == sorted(neighbours)
    # Those that nobody can read stood among the first of many quick ones, and were not kept waiting
    # until those were done.
    ((last,),) = bench.query(
        "SELECT count(*) FILTER (WHERE finished_at < (SELECT max(at) FROM"
        f" {bench.schema}.dead_letters WHERE request_id LIKE 'unread-%'))::float8 / count(*)"
        f" FROM {bench.schema}.requests WHERE id LIKE 'flood-%'"
    )
    assert last < 0.8
    assert instance.stop() == 0
