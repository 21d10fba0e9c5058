from __future__ import annotations

import re
from pathlib import Path

import pytest

from consumer.intake.assignment import Assignment
from consumer.intake.commit import Commit
from consumer.intake.commit_errors import TABLE, UNKNOWN_LIMIT, Verdict, judge
from consumer.intake.events import (
    Action,
    Answered,
    Deliver,
    Drop,
    EndService,
    Found,
    Place,
    ReadBack,
    Rejoin,
    SendCommit,
)
from consumer.intake.flow_control import NO_ROOM, Room
from consumer.intake.offset_metadata import LowMark
from consumer.intake.unfinished import Unfinished
from feedback.contract.record import OFFSET, size_of
from tests.support.consumer_records import records

A, B = ("t", 0), ("t", 1)
PLENTY = Room(1000, 1 << 20)
METADATA = "1;me-1;"


class Bench:
    """A machine with partitions A and B, and shorthands."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.commit = Commit(self.assignment, "me")
        self.commit.assigned([A, B])
        self.now = 100.0

    def poll(self, place: Place, *offsets: int) -> None:
        self.commit.polled(self.assignment.take(records(place, offsets)).runs)

    def next(self, room: Room = PLENTY) -> list[Action]:
        return self.commit.next(self.now, room)

    def later(self) -> list[Action]:
        self.now += 5.0
        return self.next()

    def answer(self, error: str | None = None, **errors: str | None) -> list[Action]:
        by_place = {{"a": A, "b": B}[name]: code for name, code in errors.items()}
        return self.commit.answered(Answered(METADATA, error, by_place))

    def found(self, found: Found) -> list[Action]:
        return self.commit.read_back(found, self.now)

    def open(self) -> SendCommit:
        self.poll(A, 0, 1)
        self.poll(B, 5)
        [sent] = self.next()
        assert isinstance(sent, SendCommit)
        return sent


@pytest.fixture
def bench() -> Bench:
    return Bench()


def delivered(actions: list[Action]) -> list[tuple[int, int]]:
    return [(r[1], r[OFFSET]) for a in actions if isinstance(a, Deliver) for r in a.records]


def test_a_batch_is_committed_with_a_token_and_delivered_on_confirmation_only(
    bench: Bench,
) -> None:
    assert bench.open() == SendCommit({A: 2, B: 6}, METADATA)
    assert bench.commit.open_since == 100.0
    assert bench.next() == []
    assert delivered(bench.answer()) == [(0, 0), (0, 1), (1, 5)]
    assert bench.commit.open_since is None
    assert bench.commit.counts["confirmed"] == 3
    assert bench.next() == []


def test_one_commit_is_open_at_a_time_and_what_comes_meanwhile_goes_together(bench: Bench) -> None:
    bench.open()
    bench.poll(A, 2)
    bench.poll(A, 3, 4)
    assert bench.commit.held == 6
    assert bench.commit.held_size > 0
    assert bench.next() == []
    bench.answer()
    assert bench.next() == [SendCommit({A: 5}, "1;me-2;")]


def test_only_what_fits_is_committed(bench: Bench) -> None:
    bench.poll(A, 0, 1, 2)
    assert bench.next(NO_ROOM) == []
    assert bench.next(Room(2, 1 << 20)) == [SendCommit({A: 2}, METADATA)]


def test_answers_to_other_commits_are_ignored(bench: Bench) -> None:
    assert bench.answer() == []
    bench.open()
    assert bench.commit.answered(Answered("1;me-0;", None, {})) == []
    assert bench.commit.answered(Answered("1;other-1;", None, {})) == []


def test_an_answer_that_names_neither_error_nor_partition_confirms_nothing(bench: Bench) -> None:
    sent = bench.open()
    assert bench.commit.answered(Answered(None, None, {})) == [ReadBack((A, B))]
    assert bench.commit.counts["confirmed"] == 0
    landed = {place: (offset, sent.metadata) for place, offset in sent.offsets.items()}
    assert delivered(bench.found(landed)) == [(0, 0), (0, 1), (1, 5)]


def test_after_any_error_every_partition_is_read_back(bench: Bench) -> None:
    bench.open()
    assert bench.answer(a=None, b="UNKNOWN_TOPIC_OR_PART") == [ReadBack((A, B))]
    assert bench.answer() == [], "the answer came already"


def test_offset_and_token_of_ours_are_ours_to_run_though_an_error_was_reported(
    bench: Bench,
) -> None:
    bench.open()
    bench.answer("UNKNOWN_MEMBER_ID")
    actions = bench.found({A: (2, METADATA), B: (6, METADATA)})
    assert delivered(actions) == [(0, 0), (0, 1), (1, 5)]


@pytest.mark.parametrize(
    "found",
    [
        (2, "1;me-0;"),
        (2, ""),
        (2, None),
        (3, METADATA),
        (1, METADATA),
        (-1001, ""),
        (9, "1;other-1;"),
    ],
)
def test_anything_else_is_not_ours(bench: Bench, found: tuple[int, str | None]) -> None:
    bench.open()
    bench.answer("REQUEST_TIMED_OUT")
    assert delivered(bench.found({A: found, B: (6, METADATA)})) == [(1, 5)]


def test_still_owned_means_sent_again_with_the_same_offset_and_token(bench: Bench) -> None:
    bench.open()
    bench.answer("ILLEGAL_GENERATION")
    assert bench.found({A: (0, ""), B: (-1001, "")}) == []
    assert bench.next() == [], "after a pause"
    assert bench.later() == [SendCommit({A: 2, B: 6}, METADATA)]
    assert delivered(bench.answer()) == [(0, 0), (0, 1), (1, 5)]


def test_what_landed_is_delivered_and_only_the_rest_sent_again(bench: Bench) -> None:
    bench.open()
    bench.answer(a=None, b="NOT_COORDINATOR")
    assert delivered(bench.found({A: (2, METADATA), B: (5, "")})) == [(0, 0), (0, 1)]
    assert bench.later() == [SendCommit({B: 6}, METADATA)]


def test_a_read_back_that_fails_is_asked_again(bench: Bench) -> None:
    bench.open()
    bench.answer("_WAIT_COORD")
    both = records(A, [0, 1])
    assert bench.found({A: (2, METADATA)}) == [Deliver(both, size_of(both))]
    assert bench.next() == []
    assert bench.later() == [ReadBack((B,))]
    assert bench.later() == [], "the answer to that is awaited"
    assert bench.found({}) == []
    assert bench.later() == [ReadBack((B,))]
    assert bench.found({B: (0, "")}) == []
    assert bench.later() == [SendCommit({B: 6}, METADATA)]
    assert bench.found({B: (6, METADATA)}) == [], "nothing was asked"


def test_an_open_batch_outlives_its_partitions_and_runs_once_confirmed(bench: Bench) -> None:
    bench.open()
    bench.poll(A, 2)
    assert bench.commit.revoked([A, B]) == [Drop(A, 1, "revoked")]
    assert bench.commit.held == 3
    assert delivered(bench.answer()) == [(0, 0), (0, 1), (1, 5)]


@pytest.mark.parametrize("landed", [True, False])
def test_an_open_batch_of_a_log_that_is_gone_hides_nothing_of_the_next(
    bench: Bench, landed: bool
) -> None:
    bench.open()
    bench.poll(A, 2)
    bench.assignment.offset_reset(A)
    taken = bench.assignment.take(records(A, [0], timestamp=1))
    assert bench.commit.restarted(taken.restarted) == [Drop(A, 1, "its log is gone")]
    bench.commit.polled(taken.runs)
    if landed:
        assert delivered(bench.answer()) == [(0, 0), (0, 1), (1, 5)]
    else:
        bench.answer("UNKNOWN_TOPIC_OR_PART")
        assert bench.found({A: (-1001, ""), B: (6, METADATA)})[1:] == [
            Drop(A, 2, "not ours any more")
        ]
    [sent] = bench.next()
    assert isinstance(sent, SendCommit)
    assert sent.offsets == {A: 1}


def test_what_did_not_land_and_is_not_ours_any_more_is_dropped(bench: Bench) -> None:
    bench.open()
    bench.commit.revoked([A])
    bench.answer("REBALANCE_IN_PROGRESS")
    assert bench.found({A: (0, ""), B: (5, "")}) == [Drop(A, 2, "not ours any more")]
    assert bench.later() == [SendCommit({B: 6}, METADATA)]


def test_an_assignment_that_came_back_is_another_one(bench: Bench) -> None:
    # It starts from the committed offset, so it reads again what did not land.
    bench.open()
    bench.commit.revoked([A])
    bench.commit.assigned([A])
    bench.answer("ILLEGAL_GENERATION")
    assert bench.found({A: (0, ""), B: (5, "")})[0] == Drop(A, 2, "not ours any more")


def test_revoked_during_the_pause_is_not_sent_again(bench: Bench) -> None:
    bench.open()
    bench.answer("ILLEGAL_GENERATION")
    bench.found({A: (0, ""), B: (5, "")})
    bench.commit.revoked([A])
    assert bench.later() == [
        Drop(A, 2, "not ours any more"),
        SendCommit({B: 6}, METADATA),
    ]
    bench.answer("ILLEGAL_GENERATION")
    bench.found({B: (5, "")})
    bench.commit.revoked([B])
    assert bench.later() == [Drop(B, 1, "not ours any more")]
    assert bench.commit.open_since is None


def test_a_partition_assigned_anew_without_a_revocation_drops_its_buffer(bench: Bench) -> None:
    bench.poll(A, 0, 1)
    assert bench.commit.assigned([A]) == [Drop(A, 2, "assigned anew")]


def test_a_batch_that_turns_out_landed_is_not_taken_again_where_its_partition_came_back(
    bench: Bench,
) -> None:
    bench.open()
    bench.commit.revoked([A])
    bench.commit.assigned([A])
    bench.poll(A, 0, 1, 2)
    assert delivered(bench.answer()) == [(0, 0), (0, 1), (1, 5)]
    assert bench.next() == [SendCommit({A: 3}, "1;me-2;")]
    assert bench.commit.held == 1


def test_a_member_that_the_group_put_out_joins_anew_and_reads_again(bench: Bench) -> None:
    bench.open()
    bench.poll(A, 2)
    bench.answer("UNKNOWN_MEMBER_ID")
    assert bench.found({A: (0, ""), B: (5, "")}) == [
        Drop(A, 2, "put out of the group"),
        Drop(B, 1, "put out of the group"),
        Rejoin("UNKNOWN_MEMBER_ID"),
    ]
    assert not bench.commit.lost, "the group stands before it: it is read again"
    # What is buffered lies beyond what was dropped: committed now, that would be lost.
    assert bench.later() == []
    assert bench.commit.revoked([A, B]) == [Drop(A, 1, "revoked")]


def test_a_member_that_was_put_out_and_knows_it_joins_by_itself(bench: Bench) -> None:
    bench.open()
    bench.commit.revoked([A, B])
    bench.answer("UNKNOWN_MEMBER_ID")
    actions = bench.found({A: (0, ""), B: (5, "")})
    assert [type(action) for action in actions] == [Drop, Drop]


def test_a_broken_connection_ends_the_membership_once_the_commit_is_decided(bench: Bench) -> None:
    bench.commit.connection_lost()
    bench.open()
    bench.commit.connection_lost()
    actions = bench.answer()
    assert delivered(actions) != []
    assert isinstance(actions[-1], Rejoin)
    bench.poll(A, 2)
    assert bench.later() == [], "a later commit could be put back by the old bytes"
    bench.commit.revoked([A, B])
    bench.commit.rejoined()
    bench.commit.assigned([A])
    assert bench.next() == [ReadBack((A,))]
    assert bench.found({A: (2, METADATA)}) == []
    bench.poll(A, 2)
    assert bench.next() == [SendCommit({A: 3}, "1;me-2;")]


def test_a_connection_that_broke_before_an_answer_that_was_said_first_ends_the_membership(
    bench: Bench,
) -> None:
    bench.open()
    bench.answer()
    assert bench.commit.connection_lost() == []
    [action] = bench.commit.connection_lost(late=True)
    assert isinstance(action, Rejoin)
    assert bench.commit.connection_lost(late=True) == [], "once is enough"
    bench.poll(A, 2)
    assert bench.later() == []


@pytest.mark.parametrize("code", ["_TRANSPORT", "_TIMED_OUT", "_SOMETHING_ELSE"])
def test_errors_of_the_client_itself_leave_bytes_on_their_way(bench: Bench, code: str) -> None:
    bench.open()
    bench.answer(code)
    actions = bench.found({A: (2, METADATA), B: (6, METADATA)})
    assert isinstance(actions[-1], Rejoin)


def rejoined(bench: Bench) -> None:
    bench.open()
    bench.commit.connection_lost()
    bench.answer()
    bench.commit.revoked([A, B])
    bench.commit.rejoined()
    bench.commit.assigned([A, B])


def test_an_offset_that_was_put_back_is_committed_again_at_once_and_not_run_again(
    bench: Bench,
) -> None:
    rejoined(bench)
    bench.poll(A, 0, 1, 2)
    assert bench.next() == [ReadBack((A, B))]
    assert bench.next() == []
    put_back = {A: (0, "1;me-0;"), B: (1, "1;me-0;")}
    assert bench.found(put_back) == [SendCommit({A: 2, B: 6}, "1;me-2;")]
    assert bench.commit.answered(Answered("1;me-2;", None, {})) == []
    assert bench.next() == [SendCommit({A: 3}, "1;me-3;")]
    bench.poll(B, 4, 5, 6)
    assert bench.commit.held == 2


def test_an_offset_that_was_put_back_is_told_with_what_is_to_be_read_before_it() -> None:
    bench = Bench()
    bench.commit = Commit(bench.assignment, "me", Unfinished())
    bench.commit.assigned([A])
    bench.poll(A, 0, 1)
    bench.next()
    bench.commit.connection_lost()
    assert delivered(bench.answer()) == [(0, 0), (0, 1)]
    bench.commit.marks.given_up(records(A, [0, 1]))
    bench.commit.revoked([A])
    bench.commit.rejoined()
    # Late bytes have put the offset back to where all was finished, so there is no gap.
    bench.commit.assigned([A])
    assert bench.next() == [ReadBack((A,))]
    [sent] = bench.found({A: (0, "1;me-0;0")})
    assert sent == SendCommit({A: 2}, "1;me-2;", {A: LowMark(0)})


@pytest.mark.parametrize("found", [(0, "1;other-9;"), (0, ""), (0, None), (-1001, ""), (9, "x")])
def test_anothers_commit_or_an_operators_stands(
    bench: Bench, found: tuple[int, str | None]
) -> None:
    rejoined(bench)
    assert bench.next() == [ReadBack((A, B))]
    assert bench.found({A: found, B: (6, METADATA)}) == []
    bench.poll(A, 0)
    assert bench.next() == [SendCommit({A: 1}, "1;me-2;")]


def test_nothing_is_committed_before_partitions_that_came_back_were_looked_at(
    bench: Bench,
) -> None:
    rejoined(bench)
    bench.poll(A, 2)
    assert bench.next() == [ReadBack((A, B))]
    assert bench.found({A: (2, METADATA)}) == []
    assert bench.next() == []
    assert bench.later() == [ReadBack((B,))]
    bench.commit.revoked([B])
    assert bench.found({}) == []
    assert bench.next() == [SendCommit({A: 3}, "1;me-2;")]
    bench.commit.answered(Answered("1;me-2;", None, {}))
    bench.commit.assigned([B])
    assert bench.next() == [ReadBack((B,))], "it has not been looked at yet"


@pytest.mark.parametrize("code", [c for c, row in TABLE.items() if row.verdict is Verdict.FATAL])
def test_what_no_retry_can_help_ends_the_service_after_a_last_look(bench: Bench, code: str) -> None:
    bench.open()
    assert bench.answer(a=None, b=code) == [ReadBack((A, B))]
    actions = bench.found({A: (2, METADATA)})
    assert delivered(actions) == [(0, 0), (0, 1)]
    assert actions[1] == Drop(B, 1, "fatal error")
    assert isinstance(actions[2], EndService)
    assert code in actions[2].message
    bench.poll(A, 2)
    assert bench.later() == []


def test_an_unknown_error_is_tried_again_so_many_times(bench: Bench) -> None:
    bench.open()
    nothing = {A: (0, ""), B: (5, "")}
    for _ in range(UNKNOWN_LIMIT - 1):
        bench.answer("BRAND_NEW")
        assert bench.found(nothing) == []
        assert isinstance(bench.later()[0], SendCommit)
    bench.answer("BRAND_NEW")
    assert isinstance(bench.found(nothing)[-1], EndService)


def test_the_gravest_error_decides(bench: Bench) -> None:
    bench.open()
    bench.answer("NOT_COORDINATOR", a="GROUP_AUTHORIZATION_FAILED", b="UNKNOWN_MEMBER_ID")
    assert isinstance(bench.found({})[-1], EndService)


def test_stopping_leaves_to_others_what_was_not_committed_and_settles_the_rest(
    bench: Bench,
) -> None:
    bench.open()
    bench.poll(A, 2, 3)
    assert bench.commit.stop() == [Drop(A, 2, "stopping")]
    bench.answer("REQUEST_TIMED_OUT")
    bench.found({A: (0, ""), B: (5, "")})
    assert bench.later() == [SendCommit({A: 2, B: 6}, METADATA)]
    bench.commit.connection_lost()
    assert delivered(bench.answer()) != []
    bench.poll(A, 4)
    assert bench.later() == [], "nor does it join anew"


def test_what_somebody_else_has_committed_beyond_may_be_lost(bench: Bench) -> None:
    bench.open()
    bench.commit.revoked([A, B])
    bench.answer("REQUEST_TIMED_OUT")
    assert bench.found({A: (7, "1;other-1;"), B: (5, "1;other-1;")}) == [
        Drop(A, 2, "not ours any more"),
        Drop(B, 1, "not ours any more"),
    ]
    assert bench.commit.lost == {"a.b": 2}


def test_a_commit_that_does_not_settle_is_given_up(bench: Bench) -> None:
    bench.open()
    assert bench.commit.abandon() == [Drop(A, 2, "undecided"), Drop(B, 1, "undecided")]
    assert bench.commit.abandon() == []
    assert bench.answer() == [], "its answer comes too late"
    assert bench.commit.counts["drop:undecided"] == 3
    assert bench.commit.lost == {"a.b": 3}


def test_the_table_has_what_was_seen_on_real_brokers() -> None:
    again = (
        "COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR REQUEST_TIMED_OUT REBALANCE_IN_PROGRESS"
        " STALE_MEMBER_EPOCH ILLEGAL_GENERATION _WAIT_COORD _TIMED_OUT"
    )
    assert {judge(code).verdict for code in again.split()} == {Verdict.AGAIN}
    assert {judge(code).verdict for code in ("UNKNOWN_MEMBER_ID", "_FATAL")} == {Verdict.REJOIN}
    fatal = "FENCED_INSTANCE_ID GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED"
    assert {judge(code).verdict for code in fatal.split()} == {Verdict.FATAL}
    assert all(row.reason for row in TABLE.values())


def test_the_table_uses_the_clients_names() -> None:
    from confluent_kafka import KafkaError

    codes = [getattr(KafkaError, name) for name in dir(KafkaError) if name.strip("_").isupper()]
    assert set(TABLE) <= {KafkaError(code).name() for code in codes}


def test_the_page_says_of_each_error_what_the_table_says() -> None:
    page = (Path(__file__).parents[4] / "docs" / "consumer.md").read_text()
    rows = re.findall(r"^\| ([a-z ,]+) \| (`_?[A-Z].*?) \| ", page, re.MULTILINE)
    said = {code: verdict for verdict, codes in rows for code in _codes(codes)}
    words = {
        (Verdict.AGAIN, False): "send again",
        (Verdict.AGAIN, True): "send again, then join anew",
        (Verdict.REJOIN, False): "drop and join anew",
        (Verdict.FATAL, False): "end the service",
    }
    assert said == {code: words[m.verdict, m.loose] for code, m in TABLE.items()}


def _codes(text: str) -> list[str]:
    """Names in backquotes; one that ends in an underscore shares the next one's last words."""
    names = re.findall(r"`(\w+)`", text)
    return [f"{name}AUTHORIZATION_FAILED" if name.endswith("_") else name for name in names]
