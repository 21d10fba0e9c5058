from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feedback.contract.states import SETTLED, State
from feedback.outbox.relay.answers import (
    AnswerPace,
    AnswerPolicy,
    Ended,
    Findings,
    Later,
    SentRow,
    judge,
)
from feedback.status.status import Status

NOW = datetime(2030, 1, 1, tzinfo=UTC)
POLICY = AnswerPolicy(60.0, {"slow": 600.0})
NOTHING = Findings([], [], [], [])


def row(**changes: Any) -> SentRow:
    made = SentRow(1, "r", "t", "sent", "aa", None, 1, 1, due=False, stale=False, created_at=NOW)
    return made._replace(**changes)


def status(state: State, code: str = "ok", run: int = 1, **fields: Any) -> Status:
    at = fields.pop("at", NOW)
    return Status("r", "t", state, code, 1, run, at, **{"fingerprint": "aa", **fields})


def found(row: SentRow, status: Status | None) -> Findings:
    return judge([row], [status], POLICY, NOW)


@pytest.mark.parametrize("result", ["\\u0000", ["\\\\u0000"], {"\\u0000": 1}])
def test_a_result_that_only_looks_as_if_it_had_a_zero_character_is_kept(result: Any) -> None:
    [ended] = found(row(), status(State.DONE, result=result)).ended
    assert (ended.result, ended.error) == (result, None)


def test_a_result_with_a_zero_character_is_left_out_and_that_is_said() -> None:
    [ended] = found(row(), status(State.DONE, result=["\\\0"])).ended
    assert ended.result is None
    assert "U+0000" in str(ended.error)
    [ended] = found(row(), status(State.FAILED, result="\0", error="poor")).ended
    assert str(ended.error).startswith("poor; ")


@pytest.mark.parametrize("state", sorted(SETTLED))
def test_whatever_settles_a_request_ends_its_row(state: State) -> None:
    for standing in ("sent", "unanswered"):
        answer = found(row(state=standing, due=True), status(state, "code", result=[1], error="e"))
        assert answer == NOTHING._replace(ended=[Ended(1, "r", "t", str(state), "code", [1], "e")])


def test_what_was_not_run_is_sent_again_after_a_pause_that_grows() -> None:
    refused = status(State.FAILED, "shutdown")
    said = f"000014 {NOW.isoformat()}"
    assert found(row(), refused).later == [Later(1, 1.0, said)]
    assert found(row(sends=4), refused).later == [Later(1, 8.0, said)]
    assert found(row(sends=90), refused).later == [Later(1, 30.0, said)]
    waits = row(seen=said)
    assert found(waits, refused) == NOTHING
    assert found(waits._replace(due=True), refused).again == [1]
    [again] = found(waits, status(State.FAILED, "shutdown", run=2)).later
    assert again == Later(1, 1.0, f"000024 {NOW.isoformat()}")
    assert found(waits, status(State.FAILED, "handler_error", run=2)).ended


def test_silence_is_followed_by_sends_up_to_a_bound() -> None:
    for silence in (None, status(State.ACCEPTED)):
        assert found(row(), silence) == NOTHING
        assert found(row(due=True), silence).again == [1]
        assert found(row(due=True, tries=8), silence).unanswered == [1]
        assert found(row(due=True, stale=True), silence).unanswered == [1]
        assert found(row(due=True, tries=8, state="unanswered"), silence) == NOTHING


def test_work_on_it_is_news_once() -> None:
    """What was killed shows it for good."""
    works = status(State.RUNNING)
    assert found(row(), works) == NOTHING
    [later] = found(row(due=True, tries=8), works).later
    assert later == Later(1, 60.0, f"000012 {NOW.isoformat()}")
    counted = row(due=True, seen=later.seen)
    assert found(counted, works).again == [1]
    assert found(counted._replace(tries=8), works).unanswered == [1]
    later_on = replace(works, at=NOW + timedelta(seconds=1))
    for news in (status(State.RUNNING, run=2), status(State.WAITING), later_on):
        assert found(counted, news).later


def test_what_waits_is_news_until_its_time() -> None:
    waits = status(State.WAITING, retry_at=NOW + timedelta(hours=1))
    [later] = found(row(due=True, type="slow"), replace(waits, type="slow")).later
    assert (later.seconds, later.waits) == (4200.0, 3600.0)
    assert found(row(state="unanswered", due=True), waits) == NOTHING
    counted = row(due=True, seen=later.seen)
    assert found(counted, waits).later
    assert judge([counted], [waits], POLICY, NOW + timedelta(hours=2)).again == [1]


def test_another_request_under_its_id_ends_it() -> None:
    for state in (State.RUNNING, State.DONE):
        [ended] = found(row(), status(state, fingerprint="bb")).ended
        assert (ended.state, ended.code, ended.result) == ("undeliverable", "conflict", None)
    assert found(row(), status(State.DONE, fingerprint=None)).ended[0].state == "done"


def test_a_status_of_another_type_is_that_of_another_request() -> None:
    """Also where its type makes fingerprints of its own, which no status names."""
    theirs = replace(status(State.DONE, fingerprint=None), type="other")
    [ended] = found(row(), theirs).ended
    assert (ended.type, ended.state, ended.code) == ("t", "undeliverable", "conflict")
    assert "of type other" in (ended.error or "")


@pytest.mark.parametrize("kind", ["", "t", "other"])
def test_what_is_said_of_a_message_that_could_not_be_read_is_silence(kind: str) -> None:
    """What a relay sends can be read, so it was somebody else's, under the same id."""
    theirs = replace(status(State.FAILED, "malformed", fingerprint=None), type=kind)
    assert found(row(), theirs) == NOTHING
    assert found(row(due=True), theirs).again == [1]
    assert found(row(due=True, tries=8), theirs).unanswered == [1]
    assert found(row(state="unanswered"), theirs) == NOTHING


def test_a_result_that_jsonb_has_no_form_for_is_left_out() -> None:
    [ended] = found(row(), status(State.DONE, result={"a": "b\0"})).ended
    assert (ended.state, ended.result) == ("done", None)


def test_what_was_sent_lately_is_looked_at_most_often_and_nothing_all_the_time() -> None:
    pace = AnswerPace()
    now, looked = 100.0, []
    for _ in range(30):
        looked.append(pace.young)
        took = 0.4 if pace.young is None else 0.2
        pace.looked(took)
        now += took
        now += pace.ended(now)
    assert looked[0] is None
    assert looked.count(None) == 5
    pace.ended(now + 100)
    for _ in range(1000):
        pace.looked(0.1)
    assert pace.ended(now + 200) == 0.5  # a million rows
    assert pace.young == 15.0
    pace.looked(10.0)
    assert pace.ended(now + 1010) == 30.0
    assert pace.young == 15.0
    pace.ended(now + 1100)
    assert pace.young is None


def test_a_failure_from_before_the_row_asks_for_another_run_and_the_next_one_ends_it() -> None:
    late = row(created_at=NOW + timedelta(seconds=1))
    old = status(State.FAILED, "handler_error")
    [later] = found(late, old).later
    assert later == Later(1, 60.0, f"000014 {NOW.isoformat()}")
    seen = late._replace(seen=later.seen)
    assert found(seen, old) == NOTHING
    assert found(seen._replace(due=True), old).again == [1]
    assert found(seen, status(State.FAILED, "handler_error", run=2)).ended  # clocks may differ
    assert found(late, status(State.DONE)).ended
    record = status(State.FAILED, "handler_error", run=0)  # of which no next one can be told
    assert found(late, record).ended


def test_a_failure_from_before_a_send_is_not_that_sends() -> None:
    """As of a `call` under the id of a row that waited for a relay."""
    old = status(State.FAILED, "handler_error")
    sent = row(created_at=NOW - timedelta(hours=2), sent_at=NOW + timedelta(seconds=2))
    [later] = found(sent, old).later
    seen = sent._replace(seen=later.seen)
    assert found(seen, old) == NOTHING
    assert found(seen._replace(due=True), old).again == [1]
    assert found(seen._replace(state="unanswered"), old) == NOTHING, "nor later on"
    assert found(seen, replace(old, at=NOW + timedelta(seconds=1), run=2)).ended, "its own"
    assert found(sent._replace(sent_at=NOW + timedelta(seconds=1)), old).ended, "clocks differ"
    assert found(sent._replace(state="unanswered"), old).ended, "no other run is to come"


def test_a_failure_with_the_number_of_what_was_not_run_ends_a_row() -> None:
    """Of what was not run the journal knows nothing, and counts on without it."""
    sent = row(sent_at=NOW - timedelta(seconds=1), created_at=NOW - timedelta(hours=1))
    refused = status(State.FAILED, "shutdown", run=2, journaled=False)
    [later] = found(sent, refused).later
    for run in (1, 2):
        own = status(State.FAILED, "handler_error", run=run)
        since = replace(own, at=NOW + timedelta(milliseconds=1))
        assert found(sent._replace(seen=later.seen), since).ended


@pytest.mark.parametrize(
    "since",
    [
        status(State.RUNNING, run=6),
        status(State.WAITING, run=6),
        status(State.FAILED, "database_unavailable", run=6, journaled=False),
    ],
)
def test_a_failure_from_before_the_row_that_comes_back_is_no_news(since: Status) -> None:
    """As of a Redis that starts from its last snapshot, or of a replica that is behind."""
    sent = row(created_at=NOW - timedelta(minutes=5), sent_at=NOW - timedelta(minutes=5), due=True)
    [later] = found(sent, since).later
    counted = sent._replace(seen=later.seen, due=False)
    again = replace(status(State.FAILED, "handler_error", run=5), at=NOW - timedelta(hours=1))
    assert found(counted, again) == NOTHING
    assert found(counted._replace(due=True), again).again == [1], "and it is asked for what stands"
    assert found(counted._replace(state="unanswered"), again) == NOTHING
    assert found(counted, replace(again, run=7)).ended, "by a clock that is behind"
    assert found(counted, status(State.DONE, at=again.at)).ended


@pytest.mark.parametrize("state", [State.FAILED, State.DEAD, State.IN_DOUBT, State.CANCELLED])
@pytest.mark.parametrize("seen", [f"000054 {NOW.isoformat()}", "000054"], ids=["new", "old form"])
def test_an_end_by_a_clock_that_is_behind_is_one_though_refusals_have_raised_the_number(
    state: State, seen: str
) -> None:
    sent = row(created_at=NOW - timedelta(minutes=1), sent_at=NOW, seen=seen)
    own = status(state, "handler_error", run=4, at=NOW - timedelta(seconds=2))
    assert found(sent, own).ended


def test_a_refusal_that_was_counted_in_the_old_form_is_no_news() -> None:
    sent = row(created_at=NOW - timedelta(minutes=1), seen="000054")
    refused = status(State.FAILED, "shutdown", run=5, journaled=False)
    assert found(sent, refused) == NOTHING
    assert found(sent, status(State.FAILED, "shutdown", run=6, journaled=False)).later
    before = status(State.FAILED, "handler_error", run=5, at=NOW - timedelta(hours=1))
    assert found(sent, before) == NOTHING


@pytest.mark.parametrize("state", [State.RUNNING, State.WAITING])
def test_work_that_comes_back_does_not_lower_what_was_seen(state: State) -> None:
    seen = f"000052 {NOW.isoformat()}"
    sent = row(created_at=NOW - timedelta(minutes=5), seen=seen, due=True)
    older = status(state, run=2, at=NOW - timedelta(minutes=1))
    assert found(sent, older).again == [1]
    if state is State.WAITING:
        waits = replace(older, retry_at=NOW + timedelta(hours=1))
        assert found(sent, waits).later == [Later(1, 3660.0, seen, 3600.0)]
    refused = replace(status(State.FAILED, "shutdown", run=2), at=NOW - timedelta(minutes=1))
    assert found(sent, refused).again == [1]


def test_a_failure_that_is_read_again_long_after_is_not_that_of_a_row_added_since() -> None:
    """As from the beginning of a results topic whose log was cut off at a failover."""
    later = row(created_at=NOW + timedelta(hours=1, seconds=1))
    assert found(later, status(State.FAILED, "handler_error", run=0)) == NOTHING
    own = later._replace(created_at=NOW + timedelta(hours=1))  # by a clock that is an hour ahead
    assert found(own, status(State.FAILED, "handler_error", run=0)).ended
    waited = own._replace(sent_at=NOW + timedelta(hours=1, seconds=2))
    assert found(waited, status(State.FAILED, "handler_error", run=0)) == NOTHING
    assert found(later, status(State.DONE, run=0)).ended, "no other record comes of it"
