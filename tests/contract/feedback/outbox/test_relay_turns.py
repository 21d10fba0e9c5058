"""Turns of relays over a real outbox, with senders that a test plays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.contract.states import State
from feedback.message_size import LARGEST_ROW
from feedback.outbox.relay import database, loop
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import MOST_FAILURES, Batch, ClaimedRow, RowRefusal
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.relay.settling import Settling
from feedback.outbox.relay.turns import SendTurns
from feedback.outbox.rows import shard_of
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.commands import Commands
from tests.support.outbox import Outbox
from tests.support.waiting import eventually


class Played:
    """A sender to a topic that refuses some ids, or is away."""

    largest = LARGEST_ROW

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.large: set[str] = set()
        self.away = False
        self.places: list[str] = []

    def open(self) -> str | None:
        return None

    def ask(self) -> str | None:
        return None

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        return RowRefusal("too_large", "it is") if row.id in self.large else None

    def waits(self, row: ClaimedRow) -> bool:
        return False

    def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
        if self.away:
            return "away"
        for row in rows:
            self.sent.append(row.id)
            batch.confirmed(row.seq)
        return None

    def freed(self) -> list[str]:
        places, self.places = self.places, []
        return places

    def close(self) -> None: ...


def add(outbox_: Outbox, *wanted: tuple[str, str | None], payload: Any = None) -> None:
    with psycopg.connect(outbox_.url) as connection:
        many: list[Any] = [("t", payload, {"request_id": id_, "key": key}) for id_, key in wanted]
        outbox.add_many(connection, many)


class Relaying:
    """SendTurns of a relay over a connection of its own; its pauses take no time."""

    def __init__(self, outbox_: Outbox, sender: Played, **bounds: int) -> None:
        self._turns = SendTurns("default", sender, bounds=Bounds(**({"rows": 64} | bounds)))
        self._connection = psycopg.connect(outbox_.url, autocommit=True)
        self._schema = outbox_.schema
        self._database = RelayDatabase(self._connection, outbox_.schema, "default")
        self._database.prepare()

    @property
    def away(self) -> bool:
        return self._turns.away is not None

    def turn(self) -> int:
        return self._turns.turn(self._database)

    def read(self, index: str, what: str = "idx_tup_read") -> int:
        """How often an index was used, or how many of its entries were read."""
        self._connection.execute("SELECT pg_stat_force_next_flush()")
        query = f"SELECT {what} FROM pg_stat_user_indexes WHERE schemaname = %s"
        found = self._connection.execute(
            f"{query} AND indexrelname = %s".encode(), [self._schema, index]
        )
        return int(found.fetchall()[0][0])


def states(outbox_: Outbox) -> dict[str, str]:
    return {row["id"]: row["state"] for row in outbox_.rows()}


def test_a_row_that_is_refused_holds_back_its_key_until_it_is_a_dead_letter(
    outbox_: Outbox,
) -> None:
    add(outbox_, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("none", None))
    sender = Played()
    sender.large = {"a1"}
    one = Relaying(outbox_, sender, shards=64)
    for _ in range(MOST_FAILURES):
        assert "a2" not in sender.sent
        one.turn()
        one.turn()  # what backs off is not looked at, nor what waits behind it
        outbox_.run(
            "UPDATE :schema.requests SET next_at = now() WHERE state = 'unsent' AND next_at > now()"
        )
    one.turn()
    assert sorted(sender.sent) == ["a2", "b1", "none"]
    found = {row["id"]: row for row in outbox_.rows("SELECT * FROM :schema.all_requests")}
    assert (found["a1"]["state"], found["a1"]["code"]) == ("undeliverable", "too_large")
    assert (found["a2"]["state"], found["a2"]["sends"]) == ("sent", 1)


def test_while_brokers_are_away_nothing_is_marked_and_few_rows_ask(outbox_: Outbox) -> None:
    add(outbox_, *((f"r{n}", "a") for n in range(40)))
    sender = Played()
    sender.away = True
    one = Relaying(outbox_, sender)
    assert (one.turn(), one.away) == (40, True)
    assert (one.turn(), one.away) == (16, True)
    sender.away = False
    assert (one.turn(), one.away) == (16, False)
    assert one.turn() == 24
    assert sender.sent == [f"r{n}" for n in range(40)]
    assert set(states(outbox_).values()) == {"sent"}


@pytest.mark.parametrize("first", [("order-17", None), ("o", "order-17")])
def test_an_id_is_a_key_where_there_is_none(outbox_: Outbox, first: tuple[str, str | None]) -> None:
    """Whichever of the two is behind the other. And a key may be any bytes."""
    add(outbox_, first)
    add(outbox_, ("order-17/ship", "order-17") if first[1] is None else ("order-17", None))
    add(outbox_, ("other", "order-17\\"))
    sender = Played()
    sender.large = {first[0]}
    one = Relaying(outbox_, sender, shards=64, rows=64)
    assert one.turn() == 3
    assert sender.sent == ["other"]
    outbox_.run("UPDATE :schema.requests SET key = '\\xff0080' WHERE id = 'other'")
    outbox_.run("UPDATE :schema.requests SET state = 'unsent', next_at = NULL WHERE id = 'other'")
    assert one.turn() == 1
    sender.large.clear()
    outbox_.run("UPDATE :schema.requests SET next_at = now()")
    while one.turn():
        pass
    assert sender.sent.index(first[0]) < len(sender.sent) - 1
    assert len(sender.sent) == 4


def test_rows_of_a_partition_that_takes_nothing_make_room_for_others(outbox_: Outbox) -> None:
    """Those that were tried, and those that were not: with their keys, and however often."""
    stuck = {"a1", "b1"}

    class Stuck(Played):
        why = RowRefusal("not_confirmed", "t/2: not confirmed")

        def waits(self, row: ClaimedRow) -> bool:
            return row.id == "b1" and "b1" in stuck

        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            for row in [row for row in rows if row.id in stuck] + batch.held:
                batch.put_off(row.seq, 60.0, self.why)
            return super().send(batch, [row for row in rows if row.id not in stuck], timeout)

    add(outbox_, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c"))
    sender = Stuck()
    one = Relaying(outbox_, sender, shards=64, rows=3)
    for _ in range(MOST_FAILURES + 1):
        assert (one.turn() > 0, one.away) == (True, False)
        add(outbox_, (f"more{len(sender.sent)}", None))
        while one.turn():
            pass
        columns = "id, code, failures, next_at > now() AS later"
        found = outbox_.rows(
            f"SELECT {columns} FROM :schema.requests WHERE state = 'unsent' ORDER BY seq"
        )
        assert [tuple(row.values()) for row in found] == [
            ("a1", "not_confirmed", 0, True),
            ("a2", None, 0, None),
            ("b1", "not_confirmed", 0, True),
            ("b2", None, 0, None),
        ]
        outbox_.run("UPDATE :schema.requests SET next_at = now() WHERE next_at > now()")
    assert "c1" in sender.sent
    stuck.clear()
    while one.turn():
        pass
    assert set(states(outbox_).values()) == {"sent"}
    assert {row["code"] for row in outbox_.rows()} == {None}


def test_what_was_put_off_is_released_with_its_partition(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its sender, a few at once and in the order of a key; all that another relay put off."""
    monkeypatch.setattr(database, "_RELEASED", 2)
    sender = Played()
    one = Relaying(outbox_, sender, shards=64)
    assert one.turn() == 0
    why = {
        "a1": ("not_confirmed", "t/2: late"), "a3": ("not_confirmed", "t/2: late"),
        "b": ("not_confirmed", "t/2: late"), "c": ("not_confirmed", "t/2: late"),
        "other": ("not_confirmed", "t/22: late"), "large": ("too_large", "t/2: it is"),
        "theirs": ("not_confirmed", "t/2: late"),
    }  # fmt: skip
    add(outbox_, ("a1", "a"), ("a2", "a"), ("a3", "a"))
    add(outbox_, *((name, None) for name in list(why)[2:]))
    for name, (code, error) in why.items():
        outbox_.run(
            f"UPDATE :schema.requests SET next_at = now() + interval '1 hour', code = '{code}',"
            f" error = '{error}' WHERE id = '{name}'"
        )
    outbox_.run("UPDATE :schema.requests SET sender = 'billing' WHERE id = 'theirs'")
    assert (one.turn(), sender.sent) == (0, [])
    sender.places = ["t/2: "]
    turns = 0
    while one.turn():
        turns += 1
    assert sorted(sender.sent) == ["a1", "a2", "a3", "b", "c"]
    assert [name for name in sender.sent if name[0] == "a"] == ["a1", "a2", "a3"]
    assert turns == 2
    another = Played()
    assert (Relaying(outbox_, another, shards=64).turn(), another.sent) == (1, ["other"])


def test_that_brokers_take_messages_again_is_said_when_one_has(
    outbox_: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Not of a row that waits behind what backs off, nor of what they refuse."""
    caplog.set_level("INFO", "oncepool.relay")
    add(outbox_, ("a1", "a"), ("a2", "a"))

    class Refusing(Played):
        refuses = False

        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            if not self.refuses:
                return super().send(batch, rows, timeout)
            for row in rows:
                batch.refused(row.seq, RowRefusal("too_large", "it is"))
            return None

    sender = Refusing()
    sender.away = True
    one = Relaying(outbox_, sender, shards=64)
    assert (one.turn(), one.away) == (2, True)
    outbox_.run("UPDATE :schema.requests SET next_at = now() + interval '1 hour' WHERE id = 'a1'")
    assert (one.turn(), one.away) == (0, False), "nobody knows"
    sender.refuses = True
    add(outbox_, *((f"b{n}", "b") for n in range(40)))
    assert 0 < sum(one.turn() for _ in range(2)) <= 16, "few rows ask"
    assert "take messages again" not in caplog.text
    sender.away = sender.refuses = False
    outbox_.run("UPDATE :schema.requests SET next_at = NULL WHERE id LIKE 'b%'")
    assert one.turn() > 16, "they have answered"
    assert caplog.text.count("take messages again") == 1
    assert caplog.text.count("away; what is to be sent waits") == 1


def test_a_row_in_doubt_that_is_refused_later_may_have_run_and_is_waited_for(
    outbox_: Outbox,
) -> None:
    """As where brokers did not confirm in time what they had, and its topic is closed since."""
    add(outbox_, ("doubted", None), ("known", None))
    sender = Played()
    sender.away = True
    Relaying(outbox_, sender, rows=1, shards=1).turn()
    [doubted] = outbox_.rows("SELECT id FROM :schema.all_requests WHERE sent_at IS NOT NULL")
    sender.away, sender.large = False, {"doubted", "known"}
    outbox_.run(f"UPDATE :schema.requests SET failures = {MOST_FAILURES - 1}")
    Relaying(outbox_, sender, shards=64).turn()
    [known] = {"doubted", "known"} - {doubted["id"]}
    assert states(outbox_) == {doubted["id"]: "unanswered", known: "undeliverable"}
    store = MemoryStatusStore()
    fields = StatusFields(
        doubted["id"], "t", State.DONE, 1, code="ok", attempt=1, at=datetime.now(UTC)
    )
    store.write([StatusWrite(doubted["id"], fields.encode(), 60)])
    settling = Settling(outbox_.schema, "default", store, AnswerPolicy(), inbox=False)
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        settling.page(connection)
    assert states(outbox_) == {known: "undeliverable"}


def test_two_relays_never_have_a_key_at_once(outbox_: Outbox) -> None:
    add(outbox_, ("a1", "a"), ("b1", "b"))
    add(outbox_, ("a2", "a"))
    first, second = Played(), Played()
    inner = Relaying(outbox_, second, shards=64)

    class Meanwhile(Played):
        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            inner.turn()
            return super().send(batch, rows, timeout)

    outer = Meanwhile()
    Relaying(outbox_, outer, shards=1).turn()
    assert sorted(outer.sent + second.sent) == ["a1", "a2", "b1"]
    assert {"a1", "a2"} <= set(outer.sent) or {"a1", "a2"} <= set(second.sent)
    assert first.sent == []


def test_what_was_sent_and_not_marked_is_sent_once_more(outbox_: Outbox) -> None:
    add(outbox_, ("a", None))

    class Dies(Played):
        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            super().send(batch, rows, timeout)
            raise KeyboardInterrupt

    dying, next_one = Dies(), Played()
    with pytest.raises(KeyboardInterrupt):
        Relaying(outbox_, dying).turn()
    Relaying(outbox_, next_one).turn()
    assert (dying.sent, next_one.sent) == (["a"], ["a"])
    [row] = outbox_.rows()
    assert (row["state"], row["sends"]) == ("sent", 1)


def test_a_turn_goes_on_behind_the_shards_of_the_last_one(outbox_: Outbox) -> None:
    keys = ["b", "c", "d"]
    assert len({shard_of("default", key.encode()) for key in keys}) == 3
    for n in range(2):
        add(outbox_, *((f"{key}{n}", key) for key in keys))
    sender = Played()
    one = Relaying(outbox_, sender, rows=1, shards=1)
    assert [one.turn() for _ in range(7)] == [1, 1, 1, 1, 1, 1, 0]
    first, second = sender.sent[:3], sender.sent[3:]
    assert {id_[0] for id_ in first} == set(keys)
    assert [id_[0] for id_ in second] == [id_[0] for id_ in first]
    assert {id_[1] for id_ in first} == {"0"}


def test_a_turn_passes_shards_in_which_all_waits_behind_what_backs_off(outbox_: Outbox) -> None:
    """There would be a pause at each of them, and most of the time there are none but pauses."""
    keys = ["b", "c", "d"]
    sender = Played()
    one = Relaying(outbox_, sender, rows=1, shards=1)
    for free in keys:
        outbox_.run("DELETE FROM :schema.requests")
        add(outbox_, *((f"{key}0", key) for key in keys if key != free))
        outbox_.run("UPDATE :schema.requests SET next_at = now() + interval '1 hour', failures = 1")
        add(outbox_, *((f"{key}1", key) for key in keys))
        assert (one.turn(), sender.sent) == (1, [f"{free}1"])
        assert one.turn() == 0
        sender.sent.clear()


def test_a_claim_reads_what_it_takes_and_nothing_else(outbox_: Outbox) -> None:
    """Also where the planner knows of nothing that backs off, as when much does so at once."""
    add(outbox_, *((f"off{n}", f"off{n}") for n in range(500)))
    outbox_.run(
        "UPDATE :schema.requests SET next_at = now() + interval '1 hour', failures = 1,"
        " shard = seq % 64"
    )
    one = Relaying(outbox_, Played(), rows=4, shards=1)
    assert one.turn() == 0  # the first of a relay looks for what another one has put off
    add(outbox_, *((f"due{n}", f"due{n}") for n in range(256)))
    outbox_.run("UPDATE :schema.requests SET shard = seq % 64")
    looked_up, before = one.read("requests_unsent", "idx_scan"), one.read("requests_backing_off")
    assert one.turn() == 4
    assert one.read("requests_unsent", "idx_scan") - looked_up <= 5
    assert one.read("requests_backing_off") - before <= 4


def test_a_batch_is_bounded_in_bytes_but_never_empty(outbox_: Outbox) -> None:
    add(outbox_, *((f"r{n}", "a") for n in range(4)), payload="x" * 1000)
    sender = Played()
    one = Relaying(outbox_, sender, bytes=1500)
    assert [one.turn(), one.turn(), one.turn()] == [2, 2, 0]
    assert sender.sent == ["r0", "r1", "r2", "r3"]


def test_what_was_sent_so_long_ago_that_it_may_be_forgotten_is_not_sent_again(
    stack: Stack, outbox_: Outbox
) -> None:
    """As where a relay is away after rows were put back. Others of the key go on."""
    add(outbox_, ("fresh", None), ("lately", "k"), ("long ago", "k"), ("delayed", "k"))
    outbox_.run("UPDATE :schema.requests SET sends = 1 WHERE id <> 'fresh'")
    outbox_.run("UPDATE :schema.requests SET sent_at = now() - interval '25 hours'")
    outbox_.run("UPDATE :schema.requests SET sent_at = now() WHERE id = 'lately'")
    outbox_.run("UPDATE :schema.requests SET not_before = now() WHERE id = 'delayed'")
    outbox_.connection.execute(f"LISTEN {outbox_.schema}_settled".encode())
    sender = Played()
    one = Relaying(outbox_, sender)
    assert [one.turn(), one.turn()] == [4, 0]
    assert sender.sent == ["fresh", "lately", "delayed"]
    [row] = outbox_.rows("SELECT * FROM :schema.requests WHERE state <> 'sent'")
    assert (row["id"], row["state"], row["code"]) == ("long ago", "unanswered", "no_answer")
    assert [n.payload for n in outbox_.connection.notifies(timeout=5, stop_after=1)] == ["long ago"]
    # Somebody may decide that it goes all the same, and is told what that may come to.
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    decided = Commands(stack, "", "")("outbox", "retry", "long ago", **place)
    assert "1 were last sent more than a day ago" in decided.stderr
    assert [one.turn(), one.turn()] == [1, 0]
    assert sender.sent[3:] == ["long ago"]


def relaying(outbox_: Outbox, sender: Played) -> loop.SenderLoop:
    return loop.SenderLoop(
        outbox_.url, outbox_.schema, "default", sender, bounds=None, policy=AnswerPolicy()
    )


def test_what_was_notified_during_a_batch_is_no_turn_of_its_own_later(outbox_: Outbox) -> None:
    class Notified(Played):
        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            for _ in range(20):
                outbox_.run("SELECT pg_notify(':schema', '')")
            return super().send(batch, rows, timeout)

    add(outbox_, ("a", None))
    one = relaying(outbox_, Notified())
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        one._begin(connection)
        one._step(connection)
        outbox_.run("SELECT pg_notify(':schema', '')")
        one._step(connection)  # nothing is left to send: it waits, and is woken once at most
        assert len(list(connection.notifies(timeout=0))) <= 1


def test_an_outage_that_ends_with_nothing_to_send_is_over(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 600.0)

    class Counted(Played):
        opened = 0

        def open(self) -> str | None:
            self.opened += 1
            return None

    sender = Counted()
    sender.away = True
    add(outbox_, ("first", None))
    one = relaying(outbox_, sender)
    one.start()
    eventually(lambda: one.state.other is not None, 30)
    outbox_.run("DELETE FROM :schema.requests")  # as another relay that has sent it
    eventually(lambda: one.state.other is None, 30)
    sender.away, before = False, sender.opened
    add(outbox_, ("second", None))
    eventually(lambda: sender.sent == ["second"], 30)
    one.stop()
    assert one.join(30)
    assert sender.opened - before < 10


def test_what_is_put_off_is_so_from_the_end_of_its_batchs_sends(outbox_: Outbox) -> None:
    """Which take long where brokers are slow: it is not to be due again before they are over."""
    ends: list[datetime] = []

    class Slow(Played):
        def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
            [row] = [row for row in rows if row.id == "stuck"]
            batch.put_off(row.seq, 60.0, RowRefusal("not_confirmed", "t/2: not confirmed"))
            ends.extend(row["t"] for row in outbox_.rows("SELECT clock_timestamp() AS t"))
            return super().send(batch, [], timeout)

    add(outbox_, ("stuck", None))
    assert Relaying(outbox_, Slow(), shards=64).turn() == 1
    [row] = outbox_.rows()
    assert row["next_at"] - timedelta(seconds=60) > ends[0]
