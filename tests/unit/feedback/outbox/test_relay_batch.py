from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feedback.outbox.relay.batch import (
    LOCK_PAUSE,
    MOST_FAILURES,
    BackingOff,
    Batch,
    BatchMarks,
    ClaimedRow,
    PutOff,
    RowRefusal,
)

LARGE = RowRefusal("too_large", "9 bytes")
NOW = datetime.now(UTC)


def row(seq: int, key: bytes | None = None, failures: int = 0) -> ClaimedRow:
    return ClaimedRow(seq, f"r{seq}", "t", key, b"{}", [], NOW, NOW, failures)


def test_nothing_overtakes_a_row_that_no_broker_would_take() -> None:
    rows = [row(1, b"a"), row(2, b"b"), row(3, b"a"), row(4), row(5, b"b")]
    batch = Batch(rows, lambda r: LARGE if r.seq == 1 else None)
    assert [r.seq for r in batch.to_send] == [2, 4, 5]
    for r in batch.to_send:
        batch.confirmed(r.seq)
    assert batch.marks() == BatchMarks([2, 4, 5], [BackingOff(1, 2.0, LARGE)])


def test_a_dead_letter_holds_nothing_back() -> None:
    rows = [row(1, b"a", MOST_FAILURES - 1), row(2, b"a")]
    batch = Batch(rows, lambda r: LARGE if r.seq == 1 else None)
    batch.confirmed(2)
    assert batch.marks() == BatchMarks([2], [BackingOff(1, None, LARGE)])


def test_what_was_sent_behind_a_row_in_doubt_goes_again_behind_it() -> None:
    batch = Batch([row(1, b"a"), row(2, b"a"), row(3, b"b")], lambda _: None)
    batch.confirmed(2)
    batch.confirmed(3)
    assert batch.marks() == BatchMarks([3], [], in_doubt=(1, 2))


def test_what_waits_for_its_partition_holds_back_its_key_and_no_other() -> None:
    rows = [row(1, b"a"), row(2, b"a"), row(3, b"b"), row(4, b"c"), row(5, b"c")]
    batch = Batch(rows, lambda _: None, lambda r: r.lane == b"a")
    assert [r.seq for r in batch.to_send] == [3, 4, 5]
    assert [r.seq for r in batch.held] == [1]
    why = RowRefusal("not_confirmed", "t/2")
    batch.confirmed(3)
    for seq in (1, 4, 5):
        batch.put_off(seq, 5.0, why)
    assert batch.marks() == BatchMarks(
        [3], [], in_doubt=(4, 5), put_off=(PutOff(1, 5.0, why), PutOff(4, 5.0, why))
    )


def test_what_is_too_late_is_not_sent_and_holds_nothing_back() -> None:
    rows = [row(1, b"a")._replace(too_late=True), row(2, b"a"), row(3, b"b")]
    rows += [row(4, b"b")._replace(too_late=True)]
    batch = Batch(rows, lambda r: LARGE if r.seq == 3 else None)
    assert [r.seq for r in batch.to_send] == [2]
    batch.confirmed(2)
    assert batch.marks() == BatchMarks([2], [BackingOff(3, 2.0, LARGE)], (1,))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    keys=st.lists(st.sampled_from([b"a", b"b", None]), max_size=12),
    fates=st.lists(
        st.sampled_from(["checked", "refused", "confirmed", "unsent", "doubt"]), min_size=12
    ),
    failures=st.integers(0, MOST_FAILURES),
)
def test_a_key_is_marked_as_far_as_it_is_certain(
    keys: list[bytes | None], fates: list[str], failures: int
) -> None:
    rows = [row(n, key, failures) for n, key in enumerate(keys)]
    batch = Batch(rows, lambda r: LARGE if fates[r.seq] == "checked" else None)
    for r in batch.to_send:
        if fates[r.seq] == "confirmed":
            batch.confirmed(r.seq)
        elif fates[r.seq] == "refused":
            batch.refused(r.seq, LARGE)
        elif fates[r.seq] == "unsent":
            batch.unsent(r.seq)
    sent, refused, _, in_doubt, _ = batch.marks()
    ended = {*sent, *(mark.seq for mark in refused if mark.seconds is None)}
    for r in rows:
        before = [o.seq for o in rows if o.lane == r.lane and o.seq < r.seq]
        if r.seq in ended or any(mark.seq == r.seq for mark in refused):
            assert set(before) <= ended
    assert not ended.intersection(in_doubt)
    unclear = {r.seq for r in batch.to_send if fates[r.seq] not in ("refused", "unsent")}
    assert unclear.difference(sent) == set(in_doubt)


def test_what_is_behind_a_row_that_others_have_locked_is_put_off_the_first_of_each_key() -> None:
    rows = [row(1, b"a"), row(3, b"a"), row(4, b"a"), row(5, b"b")]
    rows = [one._replace(behind=one.seq in (3, 4)) for one in rows]  # 2 is locked
    batch = Batch(rows, lambda _: None)
    assert [r.seq for r in batch.to_send] == [1, 5]
    batch.confirmed(1)
    batch.confirmed(5)
    marks = batch.marks()
    assert marks.sent == [1, 5]
    assert [(one.seq, one.seconds, one.why.code) for one in marks.put_off] == [
        (3, LOCK_PAUSE, "row_locked")
    ]
