"""What a relay does to the rows of a partition that takes nothing, and to those of the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from feedback.outbox.relay import turns
from feedback.outbox.relay.batch import BatchMarks, ClaimedRow
from feedback.outbox.relay.database import Bounds
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.marking import SetAside
from feedback.outbox.relay.topic import TopicLimit
from feedback.partitions import LONGEST_PAUSE, partition_of

PARTITIONS = 3
LONELY = 2
HELD = 1000
AT_ONCE = 50
"""Rows of a turn."""
SWEEP = HELD / AT_ONCE
"""Turns in which each held row comes once."""
TURN = 0.1
"""Seconds, on the clock of the test."""


class Brokers:
    """A producer, and brokers of which one is away with its partition."""

    def __init__(self, lonely: SimpleNamespace) -> None:
        self.away = True
        self.lonely = lonely
        self.gone = {LONELY}
        self.taken: list[str] = []
        self._open: list[Callable[[Any, Any], None]] = []

    def produce(self, topic: str, **message: Any) -> None:
        partition = partition_of(message["key"], PARTITIONS)
        report, sent = message["on_delivery"], SimpleNamespace(partition=lambda: partition)
        if self.away and partition in self.gone:
            self._open.append(lambda error, _: report(error, sent))
        else:
            self.taken.append(dict(message["headers"])["ce_id"].decode())
            report(None, sent)

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return len(self._open)

    def purge(self) -> None:
        waiting, self._open = self._open, []
        for report in waiting:
            report(KafkaError(KafkaError._PURGE_QUEUE), None)

    def list_topics(self, topic: str, timeout: float) -> Any:
        whole = SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1, 2])
        found = dict.fromkeys(range(PARTITIONS), whole)
        if self.away:
            found.update(dict.fromkeys(self.gone, self.lonely))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=found)})


class Table:
    """Rows in memory, as RelayDatabase has them. Each has a key of its own, its id."""

    def __init__(self) -> None:
        self.now = 0.0
        self.unsent: dict[int, ClaimedRow] = {}
        self.rewritten = 0
        self._next_at: dict[int, tuple[float, str]] = {}
        self._number = 0

    def add(self, *partitions: int) -> ClaimedRow:
        """The next row whose key is of one of them."""
        while True:
            self._number += 1
            id_ = f"r{self._number}"
            if partition_of(id_.encode(), PARTITIONS) in partitions:
                break
        now = datetime.now(UTC)
        row = ClaimedRow(self._number, id_, "t", None, b"{}", [], now, now, 0)
        self.unsent[row.seq] = row
        return row

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def claim(self, bounds: Bounds) -> list[ClaimedRow]:
        due = [s for s in self.unsent if self._next_at.get(s, (0.0, ""))[0] <= self.now]
        return [self.unsent[seq] for seq in sorted(due)[: bounds.rows]]

    def left(self) -> float:
        return 60.0

    def mark(self, marks: BatchMarks) -> list[SetAside]:
        for seq in marks.sent:
            del self.unsent[seq]
        for seq, seconds, why in marks.put_off:
            self.rewritten += 1
            self._next_at[seq] = self.now + seconds, why.error
        assert (marks.refused, marks.too_late) == ([], ())
        return []

    def longest(self) -> float:
        """Seconds until the last row is looked at."""
        return max(self._next_at[seq][0] for seq in self.unsent) - self.now

    def put_off(self, error: str) -> int:
        return len(self._waiting(error))

    def release(self, error: str) -> int:
        found = self._waiting(error)[: 10 * AT_ONCE]
        for seq in found:
            self.rewritten += 1
            del self._next_at[seq]
        return len(found)

    def _waiting(self, error: str) -> list[int]:
        return [s for s, (at, why) in self._next_at.items() if at > self.now and error in why]


class Outage:
    """A relay beside a partition that takes nothing; others get a row each second."""

    def __init__(self, lonely: SimpleNamespace, in_sync: int | None = None) -> None:
        """`in_sync`: replicas that a partition needs, where brokers tell."""
        self.brokers, self.table = Brokers(lonely), Table()
        self._in_sync = in_sync
        self.nobody_answers = False
        self._turns = self.relay()

    def begin_anew(self, rows: int = AT_ONCE) -> None:
        """The only relay ends, and another one begins."""
        self._turns = self.relay(rows)

    def relay(self, rows: int = AT_ONCE) -> turns.SendTurns:
        """One that begins now, with so many rows at once."""
        sender = TopicSender(
            "t", {}, connect=lambda *_, **__: self.brokers, limit=self._limit,
            clock=lambda: self.table.now,
        )  # fmt: skip
        return turns.SendTurns(
            "default", sender, bounds=Bounds(rows=rows), clock=lambda: self.table.now
        )

    def _limit(self, *_: object) -> TopicLimit:
        away = "nobody answers" if self.nobody_answers else None
        return TopicLimit(away=away, in_sync=self._in_sync)

    @property
    def away(self) -> str | None:
        """Why the brokers count as away."""
        return self._turns.away

    def turn(self, relay: turns.SendTurns | None = None) -> None:
        (relay or self._turns).turn(self.table)  # type: ignore[arg-type]
        self.table.now += TURN

    def late(self, seconds: float) -> list[int]:
        """In how many turns each row of the others was sent, for so long."""
        took, end = [], self.table.now + seconds
        while self.table.now < end:
            row = self.table.add(0, 1)
            number = 0
            while row.seq in self.table.unsent:
                self.turn()
                number += 1
                assert number < 10 * SWEEP, "others' rows stand behind those that are held"
            took.append(number)
            self.table.now = max(self.table.now, round(self.table.now) + 1.0)
        return took


NO_LEADER = SimpleNamespace(leader=-1, replicas=[1, 2], isrs=[])
TOO_FEW = SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1])
NOT_REACHED = SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1, 2])
"""By this relay."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SEND_TIMEOUT", 0.01)
    random.seed(1)


@pytest.fixture(params=[NO_LEADER, TOO_FEW], ids=["no leader", "too few replicas"])
def outage(request: pytest.FixtureRequest) -> Outage:
    made = Outage(request.param)
    for _ in range(10):
        made.table.add(0, 1)
    for _ in range(HELD):
        made.table.add(LONELY)
    for _ in range(2 * int(SWEEP)):
        made.turn()
    return made


def test_held_rows_are_not_ahead_of_those_for_other_partitions(outage: Outage) -> None:
    """Nor written at each try of their partition: less often the longer it takes nothing."""
    assert outage.table.rewritten >= HELD
    assert max(outage.late(10 * LONGEST_PAUSE)) <= 4
    assert len(outage.table.unsent) == HELD
    assert outage.table.rewritten < 8 * HELD
    before = outage.table.rewritten
    assert max(outage.late(10 * LONGEST_PAUSE)) <= 4
    assert outage.table.rewritten - before < 3 * HELD


def test_held_rows_go_when_their_partition_takes_messages_again(outage: Outage) -> None:
    outage.late(10 * LONGEST_PAUSE)
    outage.brokers.away = False
    back = outage.table.now
    while outage.table.unsent:
        outage.late(1.0)
        assert outage.table.now < back + 2 * LONGEST_PAUSE
    assert len(outage.brokers.taken) == len(set(outage.brokers.taken))


def test_rows_that_a_relay_put_off_before_it_ended_are_looked_at_anew(outage: Outage) -> None:
    """It kept to itself when their partition took nothing."""
    outage.late(LONGEST_PAUSE)
    another = Outage(outage.brokers.lonely)
    another.table = outage.table
    another.brokers.away = False
    for _ in range(2 * int(SWEEP)):
        another.turn()
    assert not another.table.unsent


def test_what_another_relay_puts_off_anew_is_not_released_without_end(outage: Outage) -> None:
    """The one begins while the other, whose turns are shorter, knows that it is stuck."""
    outage.late(LONGEST_PAUSE)
    new, before = outage.relay(), outage.table.rewritten
    for _ in range(100):
        outage.turn(new)
        for _ in range(12):
            outage.turn()
    assert outage.table.rewritten - before < 5 * HELD


@pytest.mark.parametrize(
    "lonely",
    [NO_LEADER, TOO_FEW, NOT_REACHED],
    ids=["no leader", "too few replicas", "not reached"],
)
def test_a_relay_that_begins_while_a_partition_is_away_sends_what_is_for_others(
    lonely: SimpleNamespace,
) -> None:
    """Its first batches hold nothing but rows that nobody takes, which says nothing of others."""
    outage = Outage(lonely)
    for _ in range(HELD):
        outage.table.add(LONELY)
    outage.late(1.0)
    outage.late(LONGEST_PAUSE)
    outage.begin_anew()
    first, *_ = outage.late(1.0)
    assert first < 2 * SWEEP
    outage.late(LONGEST_PAUSE)
    assert len(outage.table.unsent) == HELD
    assert outage.away is None


def test_a_relay_that_begins_before_the_brokers_looks_at_many_rows_once_they_answer() -> None:
    """Or it would look at rows of a partition that takes nothing, sixteen at a time."""
    outage = Outage(NOT_REACHED, in_sync=1)
    for _ in range(HELD):
        outage.table.add(LONELY)
    outage.nobody_answers = True
    outage.turn()
    assert outage.away is not None
    outage.nobody_answers = False
    first, *_ = outage.late(1.0)
    assert first < 2 * SWEEP


def test_brokers_that_take_nothing_are_away_until_one_of_them_does() -> None:
    """Also while no more than some of the partitions are tried."""
    outage = Outage(TOO_FEW)
    outage.brokers.gone = {0, 1, LONELY}
    for partition in (*[LONELY] * AT_ONCE, 0, 1):
        outage.table.add(partition)
    outage.begin_anew(rows=2 * AT_ONCE)
    for _ in range(AT_ONCE):
        outage.turn()
        assert outage.away is not None
    outage.brokers.away = False
    outage.late(2 * LONGEST_PAUSE)
    assert not outage.table.unsent
    assert outage.away is None


@pytest.mark.parametrize("in_sync, nobody_can", [(2, False), (3, True), (None, True)])
def test_rows_are_held_for_long_only_where_nobody_can_send_them(
    in_sync: int | None, nobody_can: bool
) -> None:
    """Not where a replica is missing that is not needed: then other relays may reach the leader."""
    outage = Outage(SimpleNamespace(leader=1, replicas=[1, 2, 3], isrs=[1, 2]), in_sync)
    for _ in range(AT_ONCE):
        outage.table.add(LONELY)
    outage.late(20 * LONGEST_PAUSE)
    assert (outage.table.longest() > LONGEST_PAUSE) is nobody_can
