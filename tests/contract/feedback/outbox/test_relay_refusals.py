"""What becomes in the end of rows that real brokers refuse again and again."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import psycopg
import pytest

from feedback import outbox
from feedback.contract.envelope import read
from feedback.contract.states import State
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import MOST_FAILURES
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.settling import Settling
from feedback.outbox.relay.statuses import StatusReader
from feedback.outbox.relay.turns import SendTurns
from feedback.postgres import open_connection
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.kafka_topic import read_all
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids, messages


class Rounds:
    """One relay; between its rounds so much time goes by that all is tried again."""

    def __init__(self, outbox_: Outbox, sender: TopicSender, later: Callable[[], None]) -> None:
        self.store = MemoryStatusStore()
        self._outbox = outbox_
        self._later = later
        self._turns = SendTurns("default", sender, statuses=StatusReader(self.store))
        self._connection = open_connection(outbox_.url, "oncepool relay")
        self._database = RelayDatabase(self._connection, outbox_.schema, "default")
        self._database.prepare()

    def round(self) -> None:
        """Sends what is due until nothing is left that is."""
        while self._turns.turn(self._database):
            pass
        self._outbox.run("UPDATE :schema.requests SET next_at = now() WHERE state = 'unsent'")
        self._later()

    def settle(self, state: State) -> None:
        """Has all that was sent end so."""
        for row in self._outbox.rows():
            if row["state"] == "sent":
                self.tell(row["id"], state)
        self.look()

    def tell(self, id_: str, state: State) -> None:
        """Writes a status."""
        now = datetime.now(UTC)
        about = StatusFields(id_, "t", state, 1, code="ok", attempt=1, at=now)
        self.store.write([StatusWrite(id_, about.encode(), 60)])

    def look(self) -> None:
        """Looks for answers, once for each row."""
        settling = Settling(self._outbox.schema, "default", self.store, AnswerPolicy(), inbox=False)
        while settling.page(self._connection):
            pass

    def close(self) -> None:
        """Leaves the outbox as it is."""
        self._connection.close()


@pytest.fixture
def rounds(stack: Stack, outbox_: Outbox) -> Iterator[Callable[[str], Rounds]]:
    """Of a relay to a topic."""
    made: list[tuple[TopicSender, Rounds]] = []
    passed = [0.0]

    def later() -> None:
        passed[0] += 60.0

    def make(topic: str) -> Rounds:
        sender = TopicSender(
            topic, {"bootstrap.servers": stack.kafka}, clock=lambda: time.monotonic() + passed[0]
        )
        made.append((sender, Rounds(outbox_, sender, later)))
        return made[-1][1]

    yield make
    for sender, one in made:
        one.close()
        sender.close()


def ends(outbox_: Outbox) -> Counter[tuple[str, str | None]]:
    rows = outbox_.rows("SELECT state, code FROM :schema.all_requests")
    return Counter((row["state"], row["code"]) for row in rows)


def test_all_rows_for_a_topic_that_is_missing_are_undeliverable(
    outbox_: Outbox, rounds: Callable[[str], Rounds]
) -> None:
    """Also those that no broker was asked about, as it is known of the topic by then."""
    many = [("t", {}, {"key": f"k{n % 4}"}) for n in range(12)]
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, many)
    one = rounds(f"none-{uuid.uuid4().hex}")
    for _ in range(MOST_FAILURES * 3):  # three of each key, one after the other
        one.round()
        assert outbox_.rows("SELECT FROM :schema.requests WHERE sent_at IS NOT NULL") == []
    assert ends(outbox_) == {("undeliverable", "topic_missing"): 12}


def test_a_row_that_ran_is_no_dead_letter_though_the_next_relay_could_not_send_it(
    outbox_: Outbox,
    rounds: Callable[[str], Rounds],
    topic: Callable[..., str],
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The relay that had sent it ended before it could mark that, and took it with it."""
    with psycopg.connect(outbox_.url) as connection:
        for name in ("ran", "waits", "lost"):
            outbox.add(connection, "t", {}, request_id=name)
    name = topic()

    def ends_here(*_: object) -> None:
        raise KeyboardInterrupt

    first = rounds(name)
    with monkeypatch.context() as patched:
        patched.setattr(RelayDatabase, "mark", ends_here)
        with pytest.raises(KeyboardInterrupt):
            first.round()
    assert sorted(ids(stack, name)) == ["lost", "ran", "waits"]
    one = rounds(f"none-{uuid.uuid4().hex}")
    one.tell("ran", State.DONE)
    one.tell("waits", State.RUNNING)
    one.tell("lost", State.ACCEPTED)  # its producer's word
    for _ in range(MOST_FAILURES):
        one.round()
    one.look()
    found = outbox_.rows("SELECT id, state FROM :schema.all_requests")
    assert {row["id"]: row["state"] for row in found} == {
        "ran": "done", "waits": "unanswered", "lost": "undeliverable",
    }  # fmt: skip


def test_a_dead_letter_is_one_also_where_no_status_can_be_read(
    outbox_: Outbox, rounds: Callable[[str], Rounds]
) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {})
    one = rounds(f"none-{uuid.uuid4().hex}")
    one.store.available = False
    for _ in range(MOST_FAILURES):
        one.round()
    assert ends(outbox_) == {("undeliverable", "topic_missing"): 1}


def test_rows_of_one_key_that_brokers_refuse_are_undeliverable_each(
    outbox_: Outbox, rounds: Callable[[str], Rounds], topic: Callable[..., str], stack: Stack
) -> None:
    """As those of a program whose clock is ahead: refused in one set at first, then one by one."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, {"key": "k"})] * 3)
        outbox.add(connection, "t", {}, request_id="good", key="other")
    outbox_.run(
        "UPDATE :schema.requests SET created_at = now() + interval '2 hours' WHERE id <> 'good'"
    )
    name = topic(**{"message.timestamp.after.max.ms": "3600000"})
    one = rounds(name)
    for _ in range(MOST_FAILURES * 3):
        one.round()
    assert ends(outbox_) == {("undeliverable", "clock_ahead"): 3, ("sent", None): 1}
    assert ids(stack, name) == ["good"]


def test_a_row_that_is_older_than_its_topic_takes_goes_and_keeps_its_time(
    outbox_: Outbox, rounds: Callable[[str], Rounds], topic: Callable[..., str], stack: Stack
) -> None:
    """Where the topic takes it, it would be deleted at once once it is older than its retention."""
    with psycopg.connect(outbox_.url) as connection:
        for name in ("old", "ahead", "good"):
            outbox.add(connection, "t", {}, request_id=name)
    for name, hours in (("old", -2), ("ahead", 2)):
        outbox_.run(
            f"UPDATE :schema.requests SET created_at = now() + interval '{hours} h'"
            f" WHERE id = '{name}'"
        )
    limit = {f"message.timestamp.{side}.max.ms": "3600000" for side in ("before", "after")}
    name = topic(**limit)
    rounds(name).round()
    found = outbox_.rows("SELECT id, state, code, created_at, headers FROM :schema.requests")
    assert {row["id"]: (row["state"], row["code"]) for row in found} == {
        "old": ("sent", None), "ahead": ("unsent", "clock_ahead"), "good": ("sent", None),
    }  # fmt: skip
    made = {row["id"]: row["created_at"].timestamp() for row in found}
    sent = {envelope.id: envelope for envelope in map(read, read_all(stack.kafka, name))}
    assert sent.keys() == {"old", "good"}
    assert all(one.time == pytest.approx(made[one.id], abs=0.001) for one in sent.values())
    [good] = [row for row in found if row["id"] == "good"]
    had = "ce_time" in str(good["headers"])  # of two that were added within a millisecond
    assert (sent["good"].options.time is not None) == had, "a header that consumers have to read"


def test_the_clock_of_a_relay_says_nothing_of_what_it_sends(
    outbox_: Outbox, rounds: Callable[[str], Rounds], topic: Callable[..., str], stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 7200)
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {}, request_id="a")
    name = topic()
    rounds(name).round()
    [row] = outbox_.rows("SELECT state, created_at FROM :schema.requests")
    [envelope] = map(read, read_all(stack.kafka, name))
    assert (row["state"], envelope.options.time) == ("sent", None)
    assert envelope.time == pytest.approx(row["created_at"].timestamp(), abs=0.001)


def test_rows_in_a_foreign_form_harm_themselves_alone(
    outbox_: Outbox,
    rounds: Callable[[str], Rounds],
    topic: Callable[..., str],
    stack: Stack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As another program may write them: their headers, or times beyond all clocks."""
    odd = ['[["a", null]]', "7", '"x"', '[["a"]]', '[["a", "YQ"]]', '[[["a"], "YQ=="]]', '{"a": 1}']
    with psycopg.connect(outbox_.url) as connection:
        for number in range(len(odd)):
            outbox.add(connection, "t", {}, request_id=f"odd-{number}", key=f"k{number}")
            outbox.add(connection, "t", {}, request_id=f"behind-{number}", key=f"k{number}")
        outbox.add(connection, "t", {}, request_id="good", key="other")
        outbox.add(connection, "t", {}, request_id="never", key="time")
    for number, headers in enumerate(odd):
        outbox_.run(f"UPDATE :schema.requests SET headers = '{headers}' WHERE id = 'odd-{number}'")
    outbox_.run("UPDATE :schema.requests SET created_at = '-infinity' WHERE id = 'never'")
    name = topic()
    one = rounds(name)
    one.round()
    assert sorted(ids(stack, name)) == ["good", "never"]
    for _ in range(MOST_FAILURES):
        one.round()
    assert ends(outbox_) == {("undeliverable", "malformed"): 7, ("sent", None): 9}
    assert "its headers are no list" in caplog.text
    one.settle(State.DONE)
    assert ends(outbox_) == {("undeliverable", "malformed"): 7, ("done", "ok"): 9}


def test_what_another_program_wrote_is_sent_as_it_meant_or_not_at_all(
    outbox_: Outbox, rounds: Callable[[str], Rounds], topic: Callable[..., str], stack: Stack
) -> None:
    """No header becomes another one, and nothing goes whose end nobody could be told."""
    odd_headers = [
        '[["traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]]',
        '[["a", "QQ==QQ=="]]',
        '[["a", "!!!"]]',
        '{"a=": 1}',
        '["a="]',
        '[["ce_id", "YQ=="]]',
        '[["ce_type", "YQ=="]]',
        '[["ce_timeout", "eA=="]]',
        '[["content-type", "YXBwbGljYXRpb24vY2xvdWRldmVudHMranNvbg=="]]',
    ]
    odd_names = [("", "t"), ("i" * 201, "t"), ("a\x01", "t"), ("untyped", ""), ("other", "a\nb")]
    with psycopg.connect(outbox_.url) as connection:
        for number in range(len(odd_headers) + len(odd_names)):
            outbox.add(connection, "t", {}, request_id=f"odd-{number}")
        outbox.add(connection, "t", {}, request_id="good")
        for number, text in enumerate(odd_headers):
            values = [text, f"odd-{number}"]
            change = outbox_.sql("UPDATE :schema.requests SET headers = %s WHERE id = %s")
            connection.execute(change.encode(), values)
        for number, names in enumerate(odd_names, len(odd_headers)):
            change = outbox_.sql("UPDATE :schema.requests SET id = %s, type = %s WHERE id = %s")
            connection.execute(change.encode(), [*names, f"odd-{number}"])
        # As `encode(value, 'base64')` has it, with line breaks.
        change = outbox_.sql(
            "UPDATE :schema.requests SET headers = jsonb_build_array(jsonb_build_array('x',"
            " encode(repeat('long', 50)::bytea, 'base64'))) WHERE id = 'good'"
        )
        connection.execute(change.encode())
    name = topic()
    one = rounds(name)
    for _ in range(MOST_FAILURES):
        one.round()
    odd = len(odd_headers) + len(odd_names)
    assert ends(outbox_) == {("undeliverable", "malformed"): odd, ("sent", None): 1}
    (sent,) = messages(stack, name)
    assert (sent.headers() or [])[2:] == [("x", b"long" * 50)]
