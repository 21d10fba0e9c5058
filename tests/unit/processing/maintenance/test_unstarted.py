"""Records that an instance will not start, as waiting rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from feedback.contract.record import Record, read_again
from feedback.contract.states import State
from feedback.journal.coalescing import Superseded, superseded_statuses
from feedback.journal.rows import StoredRequest, stored_headers
from feedback.status.status import Status, StatusWrite
from processing.ipc.frames import Frame
from processing.ipc.wakeup import Waker
from processing.logs import get_logger
from processing.maintenance.copies import sort_copies
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.reporting import Reporting
from processing.maintenance.unstarted import (
    UnstartedRecords,
    parked_statuses,
    parking,
    perhaps_parked,
    stored_statuses,
)
from processing.maintenance.unstarted_handling import UnstartedHandling
from processing.settings import MaintenanceSettings

AT = datetime(2026, 5, 1, tzinfo=UTC)


def message(name: str, *headers: tuple[str, bytes | None], topic: str = "requests") -> Record:
    pairs: list[tuple[str, bytes | None]] = [
        ("ce_id", name.encode()), ("ce_type", b"pay"), *headers,
    ]  # fmt: skip
    return (topic, 2, 7, 1_700_000_000_123, b"k", b"{}", pairs, "pay", None)


def part_of(*records: Record, **more: Any) -> UnstartedRecords:
    return UnstartedRecords(1, "parked", list(records), [], [], [])._replace(**more)


def test_a_parcel_is_what_the_message_said() -> None:
    hour = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    headers: Any = [
        ("ce_time", b"2026-05-01T00:00:00Z"), ("ce_notbefore", hour.isoformat().encode()),
        ("ce_reference", b"r"), ("x", None),
    ]  # fmt: skip
    [parcel] = parking(part_of(message("a", *headers))).parcels
    assert (parcel.id, parcel.type, parcel.topic, parcel.partition, parcel.offset) == (
        "a", "pay", "requests", 2, 7,
    )  # fmt: skip
    assert (parcel.produced_at, parcel.not_before) == (AT, hour)
    assert (parcel.run, parcel.crashes, parcel.reference) == (0, 0, "r")
    kept = stored_headers(orjson.loads(parcel.headers))
    assert kept == message("a", *headers)[6]


def test_the_messages_own_time_where_the_producer_gave_none() -> None:
    [parcel] = parking(part_of(message("a"))).parcels
    assert parcel.produced_at == datetime.fromtimestamp(1_700_000_000.123, UTC)


def test_what_the_row_of_an_id_says_lives_as_long_as_its_type_has_it() -> None:
    fields: dict[str, Any] = {
        **dict.fromkeys(StoredRequest._fields), "id": "a", "type": "pay", "state": "failed",
        "code": "x", "attempt": 1, "run": 1, "created_at": AT, "status_ttl": 60,
    }  # fmt: skip
    row = StoredRequest(**fields)
    for stored, seconds in ((row, 60), (row._replace(status_ttl=None), 5)):
        [told] = stored_statuses({"a": stored}, {"a": message("a", ("ce_replyto", b"me"))}, {}, 5)
        assert (told.ttl, told.reply_to, Status.decode(told.value).at) == (seconds, "me", AT)


def test_of_two_messages_of_one_id_the_first_is_parked() -> None:
    part = part_of(
        message("a", ("n", b"1")), message("a", ("n", b"2")), message("b"),
        lost=[(0, 0), (2, 1), (1, 0)],
    )  # fmt: skip
    found = parking(part)
    assert [p.id for p in found.parcels] == ["a", "b"]
    again = part_of(message("a", ("n", b"2")), lost=[(2, 1)])
    assert (part.only(found.repeated), found.rest) == (again, [])


def test_what_is_no_request_here_is_left_over() -> None:
    broken: Record = ("requests", 0, 1, 0, None, b"{}", [("ce_type", b"pay")], "pay", None)
    foreign = message("x", topic="foreign")
    found = parking(part_of(broken, foreign, message("a"), decoded=["foreign"]))
    assert found.rest == [broken, foreign]
    assert list(found.records) == ["a"]


def test_what_may_have_been_begun_brings_that() -> None:
    records = [message("a"), read_again(message("b")), read_again(message("c"), begun=False)]
    assert [parcel.begun for parcel in parking(part_of(*records)).parcels] == [False, True, False]
    # Who had it may have done it: pure computation leaves no row that would tell.
    found = parking(part_of(*records, pure_once=["pay"]))
    assert [parcel.begun for parcel in found.parcels] == [False, True, True]


def test_suspects_bring_their_starts_and_crashes() -> None:
    found = parking(part_of(message("a"), message("b"), lost=[(2, 1), (0, 0)]))
    assert [(p.run, p.crashes) for p in found.parcels] == [(2, 1), (0, 0)]


def test_what_may_have_been_written_is_apart_from_what_was_not() -> None:
    records = [message("a"), message("b"), message("a", ("n", b"2"))]
    part = UnstartedRecords(1, "parked", records, [], [], [], limited=True)
    written, rest = perhaps_parked(part, {"a"})
    again = [read_again(message("a"), begun=False)]
    assert written == part._replace(records=again, lost=[(0, 0)], unclear=True)
    assert rest == part._replace(records=records[1:])
    assert perhaps_parked(part, set()) == [part]
    assert perhaps_parked(written, {"a"}) == [written]


def test_what_may_have_been_written_for_its_limits_is_kept_until_the_end() -> None:
    told: list[Frame] = []
    refused: list[str] = []

    def publish(writes: Sequence[StatusWrite]) -> None:
        refused.extend(write.id for write in writes)

    log = get_logger("test")
    handling = UnstartedHandling(
        MaintenanceSettings("here", "", "s", "", "p", {}),
        Reporting(told.append, publish, lambda _: None, 60),
        log,
        DeadBackends(log),
    )
    kept = UnstartedRecords(1, "parked", [message("a")], [], [(0, 0)], [], limited=True)
    handling.park(kept)
    handling.park(UnstartedRecords(2, "parked", [message("b")], [], [], [], limited=True))
    handling.park(kept._replace(number=3, limited=False))
    handling.park(kept._replace(number=4))

    for _ in range(2):
        handling.refuse_waiting()
        assert (told, refused) == ([(2, 1, 0), (3, 1, 0)], ["b"])
        assert handling.parts
    handling.refuse_waiting(ending=True)
    assert (told, refused) == ([(n, 1, 0) for n in (2, 3, 1, 4)], ["b"])
    assert not handling.parts


@pytest.mark.parametrize("comparable, conflict", [({"pay": False}, False), ({}, True)])
def test_of_a_type_with_its_own_fingerprint_no_row_says_otherwise(
    comparable: dict[str, bool], conflict: bool
) -> None:
    """Rows of ended requests did once say that producers can make any."""
    row = StoredRequest(
        "a", "pay", State.DONE, "ok", 1, 1, 0, b"its own", None, None, None, None, None,
        "requests", 2, 3, 1, None, None, None, AT, None, AT, AT, None, None, False,
    )  # fmt: skip
    found = parking(part_of(message("a"), comparable=comparable))
    copies = sort_copies(found.parcels, found.records, {"a": row})
    assert (bool(copies.conflicts), copies.answered == ["a"]) == (conflict, not conflict)
    (write,) = stored_statuses({"a": row}, found.records, comparable, 60)
    told = Status.decode(write.value).fingerprint
    assert told == (b"its own".hex() if conflict else None)


def test_the_status_lives_until_it_is_due_and_as_long_again_as_any() -> None:
    hour = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    records = [
        message("now", ("ce_replyto", b"me")),
        message("later", ("ce_notbefore", hour.isoformat().encode())),
    ]
    part = part_of(*records)
    found = parking(part)
    at = hour - timedelta(minutes=10)
    now, later = parked_statuses(found.parcels, found.records, part, at, 60)
    assert (now.ttl, later.ttl, now.reply_to, later.reply_to) == (60, 660, "me", None)
    status = Status.decode(now.value)
    assert (status.state, status.code, status.v, status.retry_at) == (
        "waiting", "parked", "000003", at,
    )  # fmt: skip
    assert Status.decode(later.value).retry_at == hour
    assert "the consumer stopped" in str(status.reason)
    limited = part._replace(limited=True)
    now, _ = parked_statuses(found.parcels, found.records, limited, at, 60)
    assert "its type is paused or limited" in str(Status.decode(now.value).reason)


@pytest.mark.parametrize(
    "starts, marked, reason",
    [
        ((1, 0), True, "the consumer stopped while it ran; another one runs it"),
        ((2, 1), True, "the consumer stopped while it ran; another one runs it"),
        ((1, 1), True, "its worker died while it ran; another one runs it"),
        ((0, 0), True, "the consumer stopped when it may have been begun; another one runs it"),
        ((0, 0), False, "the consumer stopped before it was this request's turn"),
    ],
)
def test_what_had_begun_is_told_so(starts: tuple[int, int], marked: bool, reason: str) -> None:
    record = read_again(message("a")) if marked else message("a")
    part = part_of(record)._replace(lost=[starts])
    found = parking(part)
    (write,) = parked_statuses(found.parcels, found.records, part, AT, 60)
    assert str(Status.decode(write.value).reason).startswith(reason)
    limited = part._replace(limited=True)
    (write,) = parked_statuses(found.parcels, found.records, limited, AT, 60)
    assert "its type is paused or limited" in str(Status.decode(write.value).reason)


def test_the_status_of_a_superseded_row_names_the_winner() -> None:
    rows = [
        Superseded("a", "pay", 3, 2, "b", None, [("ce_replyto", b"me")]),
        Superseded("c", "pay", 1, 1, "d", 5, []),
    ]
    one, two = superseded_statuses(rows, AT, 60)
    assert (one.ttl, one.reply_to, two.ttl, two.reply_to) == (60, "me", 5, None)
    status = Status.decode(one.value)
    assert (status.state, status.superseded_by, status.run) == ("superseded", "b", 3)


def test_a_wake_before_the_wait_is_not_lost_and_counts_once() -> None:
    waker = Waker()
    for _ in range(100_000):
        waker.wake()
    assert waker.wait(None, None) is False
    assert waker.wait(None, 0.0) is False
    other = Waker()
    assert waker.wait(other._ours.fileno(), 0.0) is False
    other.wake()
    assert waker.wait(other._ours.fileno(), None) is True
