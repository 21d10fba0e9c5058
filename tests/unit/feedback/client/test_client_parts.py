"""The client's pure parts: ids, payloads, drafts, timers, the agenda, and what answers what."""

from __future__ import annotations

import dataclasses
import enum
import json
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from feedback.client.message import draft
from feedback.client.pending import Submission, Submissions
from feedback.client.poll_schedule import LONGEST, SHORTEST, SLICE, Agenda
from feedback.client.resend import ResendTimer
from feedback.contract import ids
from feedback.contract.envelope import read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.ids import uuid7
from feedback.contract.payloads import encode_payload
from feedback.contract.states import State
from feedback.errors import Conflict, ResultMismatch
from feedback.status.status import Status
from processing import App

JSON = "application/json"
AT = datetime(2030, 5, 1, tzinfo=UTC)


# Ids


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before - 1_000 <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1_000


def test_ids_of_a_process_are_in_order_and_unique_over_threads() -> None:
    made: list[list[uuid.UUID]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(uuid7() for _ in range(5_000)))
        for mine in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({one for mine in made for one in mine}) == 20_000


def test_a_clock_set_back_and_a_full_counter_keep_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    monkeypatch.setattr(ids, "_last_ms", (1 << 40) + 7)
    monkeypatch.setattr(ids, "_counter", (1 << 42) - 2)
    made = [uuid7() for _ in range(4)]
    assert made == sorted(set(made))
    assert [one.int >> 80 for one in made] == [(1 << 40) + 7] + [(1 << 40) + 8] * 3
    assert all(one.version == 7 for one in made)


# Payloads


class Inner(pydantic.BaseModel):
    amount: int = pydantic.Field(alias="Amount")


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: datetime
    inner: Any
    colour: Colour = Colour.RED


ORDER = Order(uuid.UUID(int=1), AT, Inner(Amount=5))
ORDER_JSON = (
    b'{"id":"00000000-0000-0000-0000-000000000001","at":"2030-05-01T00:00:00+00:00",'
    b'"inner":{"Amount":5},"colour":"red"}'
)


@pytest.mark.parametrize(
    "payload, expected",
    [
        ({"b": 1, "a": [True, None]}, b'{"b":1,"a":[true,null]}'),
        ([], b"[]"),
        ("text", b'"text"'),
        (None, b"null"),
        (7, b"7"),
        (b"\xff", b"\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (Inner(Amount=2**70), b'{"Amount":1180591620717411303424}'),
        ({"d": Decimal("1.10")}, b'{"d":"1.10"}'),
        ({"n": 2**64, 3: Decimal("1.1")}, b'{"n":18446744073709551616,"3":"1.1"}'),
        (ORDER, ORDER_JSON),
        ([2**64, ORDER], b"[18446744073709551616," + ORDER_JSON + b"]"),
    ],
)  # fmt: skip
def test_payloads_as_json(payload: Any, expected: bytes) -> None:
    assert encode_payload(payload, JSON) == expected


class Price(pydantic.BaseModel):
    value: float


@dataclasses.dataclass
class Quote:
    price: float


@pytest.mark.parametrize(
    "payload",
    [
        float("nan"),
        {"a": [float("inf")]},
        {"n": 2**70, "a": float("nan")},
        Price(value=float("nan")),
        {"q": (Quote(float("nan")),)},
        {1, 2},
        {"a": object()},
        [2**70, object()],
        {"a": b"bytes"},
        "\ud800",
    ],
)
def test_what_json_has_no_form_for_is_refused_not_changed(payload: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode_payload(payload, JSON)


def test_a_list_in_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError):
        encode_payload(endless, JSON)


def test_other_content_types_take_text_and_bytes() -> None:
    assert encode_payload("ä", "text/plain") == "ä".encode()
    assert encode_payload(b"\x00", "image/png") == b"\x00"
    with pytest.raises(ValueError, match="cannot be sent as 'text/plain'"):
        encode_payload({}, "text/plain")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner),
    max_leaves=8,
)


@given(values)
def test_any_json_value_arrives_as_it_is(value: Any) -> None:
    assert json.loads(encode_payload(value, JSON)) == value


# Drafts


def make(payload: Any = None, **options: Any) -> tuple[Any, Submission]:
    kind = options.pop("type", "t")
    message, submission = draft(kind, payload, topic="requests", reply_to="me", **options)
    record = (
        message.topic, 0, 0, message.timestamp, message.key, message.value,
        list(message.headers), None,
    )  # fmt: skip
    return read(record), submission


def test_a_draft_is_what_a_consumer_reads() -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    envelope, submission = make(
        {"a": 1},
        request_id="order-17",
        key="customer-3",
        not_before=due,
        expires=due + timedelta(seconds=5),
        timeout=2,
        reference="r",
        headers={"content-type": "application/json; charset=utf-8", "x": b"y"},
    )
    assert (envelope.id, envelope.type, envelope.key) == ("order-17", "t", b"customer-3")
    assert envelope.payload == b'{"a":1}'
    assert envelope.not_before == pytest.approx(due.timestamp())
    assert envelope.expires_at == pytest.approx(due.timestamp() + 5)
    assert (envelope.timeout, envelope.reference, envelope.reply_to) == (2.0, "r", "me")
    assert envelope.headers == {"x": "y"}
    assert submission.fingerprint == fingerprint("t", b'{ "a": 1 }').hex()
    assert submission.waits_for == pytest.approx(3600, abs=5)


def test_a_draft_makes_an_id_and_uses_it_as_the_key() -> None:
    envelope, submission = make([])
    assert uuid.UUID(envelope.id).version == 7
    assert envelope.key == envelope.id.encode() == submission.id.encode()
    assert envelope.time == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
def test_a_delay_is_a_time_from_now(delay: Any) -> None:
    envelope, _ = make(delay=delay, expires=delay)
    assert envelope.not_before == pytest.approx(time.time() + 90, abs=5)
    assert envelope.expires_at == envelope.not_before


@pytest.mark.parametrize(
    "options, error",
    [
        ({"request_id": ""}, ValueError),
        ({"request_id": "a\n"}, ValueError),
        ({"type": ""}, ValueError),
        ({"type": 5}, TypeError),
        ({"type": len}, TypeError),
        ({"delay": 1, "not_before": AT}, ValueError),
        ({"not_before": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001  (the case)
        ({"not_before": datetime(2020, 1, 1, tzinfo=UTC)}, ValueError),
        ({"delay": -1}, ValueError),
        ({"delay": timedelta(days=-1)}, ValueError),
        ({"delay": 11 * 366 * 86400}, ValueError),
        ({"delay": float("inf")}, ValueError),
        ({"delay": float("nan")}, ValueError),
        ({"expires": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001  (the case)
        ({"timeout": -1}, ValueError),
        ({"headers": {"ce_id": "x"}}, ValueError),
        ({"headers": {"content-type": "application/cloudevents+json"}}, ValueError),
        ({"payload": b"{"}, ValueError),
        ({"requestid": "a"}, TypeError),
    ],
)
def test_a_draft_refuses_what_no_consumer_takes(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make(**options)


def test_bytes_that_are_no_json_need_a_content_type() -> None:
    with pytest.raises(ValueError, match="content-type"):
        make(b"\xff")
    envelope, _ = make(b"\xff", headers={"content-type": b"image/png"})
    assert (envelope.payload, envelope.content_type) == (b"\xff", "image/png")


class Declared:
    type = "payment.create"
    result_adapter = pydantic.TypeAdapter(list[Decimal])


def handler() -> None: ...


handler.__oncepool_handler__ = Declared()  # type: ignore[attr-defined]


def test_a_handler_names_its_type_and_types_its_results() -> None:
    envelope, submission = make({}, type=handler)
    assert envelope.type == "payment.create"
    done = status(State.DONE, result=["1.10"], fingerprint=submission.fingerprint)
    answer = submission.answer(done)
    assert answer is not None
    assert answer.result == [Decimal("1.10")]
    with pytest.raises(ResultMismatch) as caught:
        submission.answer(dataclasses.replace(done, result={"a": 1}))
    assert caught.value.status.result == {"a": 1}
    failed = status(State.FAILED, fingerprint=submission.fingerprint)
    assert submission.answer(failed) is failed


def test_a_handler_of_an_app_is_one() -> None:
    app = App()

    @app.handler("price.quote")
    def quote(payload: dict[str, Any]) -> Price:
        return Price(value=1.5)

    envelope, submission = make({}, type=quote)
    assert envelope.type == "price.quote"
    done = status(State.DONE, result={"value": 2.5}, fingerprint=submission.fingerprint)
    answer = submission.answer(done)
    assert answer is not None
    assert answer.result == Price(value=2.5)


# What answers what


def status(state: State, run: int = 1, **fields: Any) -> Status:
    return Status("a", "t", state, fields.pop("code", "ok"), 1, run, fields.pop("at", AT), **fields)


def submission(**fields: Any) -> Submission:
    return Submission("a", "t", **{"fingerprint": "ff", **fields})


@pytest.mark.parametrize("state", State)
def test_settled_states_answer(state: State) -> None:
    found = status(state, fingerprint="ff")
    assert submission().answer(found) is (found if found.settled else None)


def test_nothing_answers_nothing() -> None:
    assert submission().answer(None) is None


def test_another_fingerprint_is_a_conflict_as_soon_as_a_consumer_has_spoken() -> None:
    for state in State:
        found = status(state, fingerprint="ee")
        if state is State.ACCEPTED:
            assert submission().answer(found) is None
            continue
        with pytest.raises(Conflict) as caught:
            submission().answer(found)
        assert caught.value.status is found


def test_without_a_fingerprint_on_either_side_nothing_is_compared() -> None:
    assert submission().answer(status(State.DONE)) is not None
    assert submission(fingerprint=None).answer(status(State.DONE, fingerprint="ee")) is not None


def test_a_failure_from_before_the_send_is_no_answer() -> None:
    before = status(State.FAILED, 3)
    mine = submission(before=before)
    assert mine.answer(before) is None
    assert mine.answer(status(State.FAILED, 2)) is None
    assert mine.answer(status(State.FAILED, 4)) is not None
    # Other states stand, whenever they came.
    assert mine.answer(status(State.IN_DOUBT, 1)) is not None
    assert mine.answer(status(State.DONE, 1)) is not None


def test_after_failures_that_the_journal_never_saw_a_lower_run_answers() -> None:
    before = status(State.FAILED, 5, code="database_unavailable")
    mine = submission(before=before)
    assert mine.answer(before) is None
    assert mine.answer(status(State.FAILED, 1, code="handler_error")) is not None
    later = status(State.FAILED, 5, code="database_unavailable", at=AT + timedelta(seconds=1))
    assert mine.answer(later) is not None


def test_only_the_latest_submissions_are_remembered() -> None:
    known = Submissions(limit=2)
    for name in "aba":
        known.add(Submission(name, "t", None))
    latest = Submission("c", "t", None)
    known.add(latest)
    assert known.get("b") is None
    assert known.get("a") is not None
    assert known.get("c") is latest


# When a call sends again


def test_a_call_without_news_sends_again_after_its_pause() -> None:
    timer = ResendTimer(100.0, 20.0)
    assert timer.due == 120.0
    timer.sent(120.0)
    assert timer.due == 140.0


def test_after_refusals_the_gaps_double_from_one_second_to_thirty() -> None:
    timer, now, gaps = ResendTimer(0.0, 60.0), 0.0, []
    for _ in range(7):
        timer.refused(now + 0.01)
        gaps.append(timer.due - now)
        now = timer.due
        timer.sent(now)
    assert gaps == pytest.approx([1, 2, 4, 8, 16, 30, 30])


def test_a_refusal_that_comes_late_is_sent_again_at_once() -> None:
    timer = ResendTimer(0.0, 60.0)
    timer.refused(10.0)
    assert timer.due == 10.0


def test_no_gap_is_longer_than_the_pause_asked_for() -> None:
    timer = ResendTimer(0.0, 0.2)
    timer.refused(0.01)
    assert timer.due == pytest.approx(0.2)


def test_news_start_the_pause_anew() -> None:
    timer = ResendTimer(0.0, 10.0)
    timer.heard(5.0)
    assert timer.due == 15.0
    timer.heard(6.0, quiet_for=100.0)
    assert timer.due == 116.0
    timer.heard(7.0, quiet_for=-50.0)
    assert timer.due == 116.0


@given(
    st.floats(0.01, 100),
    st.lists(st.tuples(st.sampled_from(["sent", "heard", "refused"]), st.floats(0, 50))),
)
def test_resends_keep_their_distance(after: float, events: list[tuple[str, float]]) -> None:
    now, gap = 0.0, 1.0
    timer = ResendTimer(now, after)
    last = now
    for event, pause in events:
        now += pause
        if event == "sent":
            now = max(now, timer.due)
            assert now - last >= min(after, gap) - 1e-6
            last, gap = now, min(gap * 2, 30.0)
            timer.sent(now)
        elif event == "heard":
            timer.heard(now)
        else:
            timer.refused(now)


# Which statuses to read next


class AgendaMachine(RuleBasedStateMachine):
    """Whatever happens: only ids that are waited for are read, soon, and not too often."""

    def __init__(self) -> None:
        super().__init__()
        self.agenda = Agenda()
        self.now = 0.0
        self.waiting: dict[str, list[float]] = {}  # id: when each wait began
        self.unread: dict[str, float] = {}  # id: since when nobody has looked

    @rule(number=st.integers(0, 5), many=st.sampled_from([1, 1, 1, 3 * SLICE]))
    def start(self, number: int, many: int) -> None:
        for name in [f"{number}-{index}" for index in range(many)]:
            self.waiting.setdefault(name, []).append(self.now)
            self.unread.setdefault(name, self.now)
            self.agenda.started(name, self.now)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)[:20]))
        self.agenda.ended(name)
        self.waiting[name].pop()
        if not self.waiting[name]:
            del self.waiting[name]
            self.unread.pop(name, None)

    @rule(number=st.integers(0, 7))
    def hint(self, number: int) -> None:
        self.agenda.hinted([f"{number}-0", "nobody's"])

    @rule()
    def reconnect(self) -> None:
        self.agenda.missed_hints()

    @rule(fails=st.sampled_from([False, False, True]), seconds=st.floats(0.0001, 0.01))
    def read(self, fails: bool, seconds: float) -> None:
        ids = self.agenda.take(self.now)
        assert len(ids) <= SLICE
        assert set(ids) <= set(self.waiting)
        assert len(set(ids)) == len(ids)
        if not ids:
            return
        self.now += seconds
        if fails:
            self.agenda.failed()
            return
        self.agenda.done(self.now, seconds)
        for name in ids:
            self.unread[name] = self.now

    @rule(seconds=st.floats(0.001, 3))
    def idle(self, seconds: float) -> None:
        """Reads as the sweeper does, for a while."""
        end = self.now + seconds
        while self.now < end:
            ids = self.agenda.take(self.now)
            if ids:
                self.now += 0.001
                self.agenda.done(self.now, 0.001)
                for name in ids:
                    self.unread[name] = self.now
                continue
            pause = self.agenda.pause(self.now)
            if pause is None:
                self.now = end
                return
            assert 0 < pause <= LONGEST
            self.now += pause
        # Twice the longest rest, and the time of a sweep over everything.
        slack = 2 * LONGEST + 0.001 * (len(self.waiting) / SLICE + 2)
        assert all(self.now - since <= seconds + slack for since in self.unread.values())

    @invariant()
    def rests_only_where_nothing_waits(self) -> None:
        pause = self.agenda.pause(self.now)
        assert (pause is None) == (not self.waiting)


AgendaMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgenda = AgendaMachine.TestCase


def test_new_waits_and_hints_are_read_at_once() -> None:
    agenda = Agenda()
    agenda.started("a", 0.0)
    assert agenda.take(0.0) == ["a"]
    agenda.done(0.0, 0.0001)
    agenda.take(SHORTEST)
    agenda.done(10.0, 0.0001)
    assert agenda.take(10.0) == []
    agenda.hinted(["b", "a"])
    assert agenda.pause(10.0) == 0
    assert agenda.take(10.0) == ["a"]


def test_sweeps_take_a_tenth_of_the_time_at_most() -> None:
    agenda = Agenda()
    for number in range(10_000):
        agenda.started(str(number), 0.0)
    now, reading, begun = 0.0, 0.0, 0
    while now < 10.0:
        ids = agenda.take(now)
        if ids:
            seconds = 0.0006 if len(ids) > 1 else 0.0
            now += seconds
            reading += seconds
            agenda.done(now, seconds)
        elif begun < now * 100:  # waits that begin all the time do not make it read more
            begun += 1
            agenda.started(f"new {begun}", now)
        else:
            pause = agenda.pause(now)
            assert pause
            now += min(pause, 0.01)
    assert 0.08 < reading / now < 0.105


def test_a_long_wait_is_looked_at_less_often() -> None:
    agenda = Agenda()
    agenda.started("a", 0.0)
    now, reads = 0.0, 0
    while now < 600.0:
        if agenda.take(now):
            reads += 1
            agenda.done(now, 0.0002)
        else:
            pause = agenda.pause(now)
            assert pause
            now += pause
    assert reads < 1_200


def test_hints_without_end_do_not_hold_up_the_sweep() -> None:
    agenda = Agenda()
    for name in ("hinted", "silent"):
        agenda.started(name, 0.0)
    agenda.take(0.0)
    now = 1.0
    for _ in range(10):
        agenda.hinted(["hinted"])
        ids = agenda.take(now)
        agenda.done(now, 0.0001)
        now += 0.001
        if "silent" in ids:
            return
    pytest.fail("the sweep never got its turn")
