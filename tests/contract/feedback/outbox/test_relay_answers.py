"""What is written about answers, over a real outbox."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import time_machine

from feedback import outbox
from feedback.client.result import Result
from feedback.contract.states import State
from feedback.outbox.relay import settling
from feedback.outbox.relay.answers import AnswerPolicy, Ended
from feedback.outbox.relay.batch import BackingOff, BatchMarks, RowRefusal
from feedback.outbox.relay.database import RelayDatabase
from feedback.outbox.relay.record_loop import RecordLoop
from feedback.outbox.relay.records import PATIENCE, KeptRecords
from feedback.outbox.relay.settling import Settling
from feedback.status.memory_store import MemoryStatusStore
from stack import Stack
from tests.support.asked import POLICY, Asked
from tests.support.commands import Commands, answer
from tests.support.outbox import Outbox
from tests.support.waiting import eventually


def test_ends_are_written_once_and_told_in_every_way(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "a", "b", "other", "open")
    asked.status("a", State.DONE, result=b'{"n": 12345678901234567890123}')
    asked.status("b", State.REJECTED, "no_funds", error="poor\0")
    asked.status("other", State.DONE, fingerprint=b"x" * 16)
    rival = Settling(outbox_.schema, "default", asked.store, POLICY, inbox=True)
    asked.settle()
    rival.page(asked.connection)
    found = asked.rows()
    assert {id_: (row["state"], row["code"]) for id_, row in found.items()} == {
        "a": ("done", "ok"),
        "b": ("rejected", "no_funds"),
        "other": ("undeliverable", "conflict"),
        "open": ("sent", None),
    }
    assert found["a"]["result"] == {"n": 12345678901234567890123}
    assert found["a"]["settled_at"] is not None
    assert [row["id"] for row in outbox_.rows()] == ["open"]
    inbox = outbox_.rows("SELECT id, state, error FROM :schema.inbox ORDER BY n")
    assert [(row["id"], row["state"]) for row in inbox] == [
        ("a", "done"), ("b", "rejected"), ("other", "undeliverable"),
    ]  # fmt: skip
    assert [ended.id for ended in asked.told] == ["a", "b", "other"]
    assert asked.notified() == ["a", "b", "other"]


def test_only_dead_letters_are_moved_and_of_others_it_is_said_why_not(
    stack: Stack, outbox_: Outbox
) -> None:
    asked = Asked(outbox_, "open", "done", "doubt", "died", "other")
    for id_, state in (("done", State.DONE), ("doubt", State.IN_DOUBT), ("died", State.DEAD)):
        asked.status(id_, state)
    asked.status("other", State.DONE, fingerprint=b"x" * 16)
    asked.settle()
    before = asked.rows()
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    oncepool = Commands(stack, "", "")
    reasons = {
        "open": "is sent, no dead letter: the relay goes on with it",
        "done": "has ended as done: its answer stands",
        "doubt": "has ended as in_doubt: where it ran, `oncepool requests resolve`",
        "died": "has ended as dead: where it ran, `oncepool requests retry`",
        "other": "has ended as undeliverable, and its payload is gone",
        "nobody": "is unknown to the outbox",
    }
    for doing in ("retry", "drop"):
        if doing == "drop":  # a conflict is one that is listed no more then
            assert oncepool("outbox", "drop", "other", **place).stdout.split() == ["id", "other"]
            before["other"]["code"] = "conflict_dropped"
        refused = oncepool("outbox", doing, *reasons, **place)
        assert (refused.exit_code, refused.stdout) == (6, "")
        lines = refused.stderr.splitlines()
        for line, (id_, why) in zip(lines, reasons.items(), strict=True):
            assert line.startswith(f"oncepool: {id_}: {why}")
    by_state = oncepool("outbox", "retry", "--state", "in_doubt", "--yes", **place)
    assert (by_state.exit_code, "in_doubt" in by_state.stderr) == (2, True)
    assert asked.rows() == before


def test_what_was_sent_once_and_is_refused_later_is_waited_for(
    stack: Stack, outbox_: Outbox
) -> None:
    """Its first copy may have run."""
    asked = Asked(outbox_, "ran", "silent", "gone")
    asked.add("never")
    asked.silence()
    asked.settle()
    rows = [row["seq"] for row in outbox_.rows()]
    refused = [BackingOff(seq, None, RowRefusal("not_authorised", "topic")) for seq in rows]
    RelayDatabase(asked.connection, outbox_.schema, "default").mark(BatchMarks([], refused))
    states = {id_: (row["state"], row["code"]) for id_, row in asked.rows().items()}
    waits = dict.fromkeys(("ran", "silent", "gone"), ("unanswered", "not_authorised"))
    assert states == {**waits, "never": ("undeliverable", "not_authorised")}
    assert asked.notified() == ["gone", "ran", "silent"]
    asked.status("ran", State.DONE)
    asked.settle()
    said = Result("silent", "t", State.DONE, "ok", None, datetime.now(UTC))
    assert asked.settling.records(asked.connection, [said]) == []
    assert [asked.rows()[id_]["state"] for id_ in ("ran", "silent")] == ["done", "done"]
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    oncepool = Commands(stack, "", "")
    assert oncepool("outbox", "drop", "gone", "never", **place).exit_code == 0
    gone, never = oncepool("outbox", "retry", "gone", "never", **place).stderr.splitlines()
    assert "may have run" in gone
    assert "its payload is gone: add it under another id" in never


def test_a_record_counts_beside_what_is_said_of_a_message_that_could_not_be_read(
    outbox_: Outbox,
) -> None:
    asked = Asked(outbox_, "a")
    asked.status("a", State.FAILED, "malformed", fingerprint=None)
    asked.settle()
    assert asked.rows()["a"]["state"] == "sent"
    said = Result("a", "t", State.FAILED, "poor", None, datetime.now(UTC))
    asked.settling.records(asked.connection, [said])
    assert [asked.rows()["a"][name] for name in ("state", "code")] == ["failed", "poor"]


def test_what_failed_before_its_row_was_sent_does_not_end_it(outbox_: Outbox) -> None:
    """Its own copy is still to run; and one whose relay ended before it could mark that it had sent
    it is sent once more, and so runs once more."""
    asked = Asked(outbox_)
    asked.add("called", "own")
    outbox_.run("UPDATE :schema.requests SET created_at = now() - interval '1 h'")
    asked.status("called", State.FAILED, "poor", at=datetime.now(UTC) - timedelta(seconds=5))
    asked.send()
    asked.status("own", State.FAILED, "poor")
    asked.settle()
    found = asked.rows()
    assert [found[id_]["state"] for id_ in ("called", "own")] == ["sent", "failed"]
    asked.settle()
    asked.silence()
    asked.settle()
    assert asked.rows()["called"]["state"] == "unsent", "its copy may have been lost"
    asked.send()
    asked.status("called", State.DONE)
    asked.settle()
    assert asked.rows()["called"]["state"] == "done"


def test_what_was_not_committed_is_not_counted(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "a")
    outbox_.run(
        "CREATE FUNCTION :schema.refuse() RETURNS trigger LANGUAGE plpgsql"
        " AS $$BEGIN RAISE 'no'; END$$"
    )
    outbox_.run(
        "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE OF state ON :schema.requests"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION :schema.refuse()"
    )
    asked.silence()
    with pytest.raises(psycopg.errors.RaiseException):
        asked.settle()
    assert asked.settling.again == 0
    outbox_.run("DROP FUNCTION :schema.refuse() CASCADE")
    asked.settle()
    assert asked.settling.again == 1


def test_silence_sends_again_until_it_is_unanswered_and_a_late_answer_still_counts(
    stack: Stack, outbox_: Outbox
) -> None:
    asked = Asked(outbox_, "a", "b")
    asked.settle()
    assert {row["state"] for row in asked.rows().values()} == {"sent"}
    for _ in range(2):
        asked.silence()
        asked.settle()
        assert {row["state"] for row in asked.rows().values()} == {"unsent"}
        asked.send()
    asked.silence()
    asked.settle()
    found = asked.rows()["a"]
    assert (found["state"], found["code"], found["sends"]) == ("unanswered", "no_answer", 3)
    assert asked.notified() == ["a", "b"]
    asked.status("a", State.DONE)
    asked.settle()
    assert asked.rows()["a"]["state"] == "done"
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    oncepool = Commands(stack, "", "")
    assert answer(oncepool("outbox", "retry", "b", "--json", **place))["moved"] == [{"id": "b"}]
    asked.send()
    asked.silence()
    asked.settle()
    assert asked.rows()["b"]["state"] == "unsent"  # counted anew
    early = oncepool("outbox", "prune", "--older-than", "1h", "--yes", "--json", **place)
    assert answer(early) == {"deleted": 0}
    with time_machine.travel(timedelta(hours=2)):  # ages go by the clock of the database
        ahead = oncepool("outbox", "prune", "--older-than", "1h", "--yes", "--json", **place)
    assert answer(ahead) == {"deleted": 0}
    later = oncepool("outbox", "prune", "--older-than", "2999-01-01", "--yes", **place)
    assert (later.exit_code, "in the future" in later.stderr) == (2, True)
    outbox_.run("UPDATE :schema.finished SET settled_at = settled_at - interval '2 hours'")
    pruned = oncepool("outbox", "prune", "--older-than", "1h", "--yes", "--json", **place)
    assert answer(pruned) == {"deleted": 1}
    assert list(asked.rows()) == ["b"]


def test_times_of_silence_double_and_news_count_them_anew(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "a", type_="slow")

    def left() -> int:
        [row] = outbox_.rows("SELECT next_at - now() AS left FROM :schema.requests")
        seconds: timedelta = row["left"]
        return round(seconds.total_seconds(), -2)  # type: ignore[return-value]

    assert left() == 1000
    asked.silence()
    asked.settle()
    asked.send()
    assert left() == 2000
    asked.status("a", State.RUNNING)
    asked.silence()
    asked.settle()
    assert left() == 1000
    [row] = outbox_.rows()
    assert (row["state"], row["tries"], row["sends"]) == ("sent", 0, 2)
    # What was silent for so long that its consumers may have forgotten it goes to somebody.
    outbox_.run("UPDATE :schema.requests SET sent_at = sent_at - interval '25 hours'")
    asked.store = MemoryStatusStore()
    asked.settling = Settling(outbox_.schema, "default", asked.store, POLICY, inbox=False)
    asked.silence()
    asked.settle()
    assert asked.rows()["a"]["state"] == "unanswered"


def test_time_to_send_again_begins_when_a_request_is_due_and_has_room_for_a_silence(
    outbox_: Outbox,
) -> None:
    """Consumers forget nothing that waits there."""
    asked = Asked(outbox_, "delayed", "forgotten")
    asked.add("slow", type_="very slow")
    asked.send()
    policy = AnswerPolicy(100.0, {"very slow": 100_000.0})
    asked.settling = Settling(outbox_.schema, "default", asked.store, policy, inbox=False)
    outbox_.run("UPDATE :schema.requests SET sent_at = now() - interval '100001 s'")
    outbox_.run("UPDATE :schema.requests SET not_before = now() WHERE id = 'delayed'")
    asked.silence()
    asked.settle()
    states = {id_: row["state"] for id_, row in asked.rows().items()}
    assert states == {"delayed": "unsent", "slow": "unsent", "forgotten": "unanswered"}


def test_time_to_send_again_begins_when_what_waits_is_due(outbox_: Outbox) -> None:
    """Who retries it may start late: it is not given up at the first silence after."""
    asked = Asked(outbox_, "waits", "silent")
    due = datetime.now(UTC) + timedelta(days=2)
    asked.status("waits", State.WAITING, "retry", retry_at=due)
    asked.silence()
    asked.settle()
    [waits] = outbox_.rows("SELECT not_before FROM :schema.requests WHERE id = 'waits'")
    assert abs(waits["not_before"] - due) < timedelta(minutes=5)
    # Two days and some minutes later nothing more is known of either.
    outbox_.run(
        "UPDATE :schema.requests SET state = 'sent', sent_at = sent_at - interval '2 days 5 min',"
        " not_before = not_before - interval '2 days 5 min'"
    )
    asked.store.forget()
    asked.silence()
    asked.settle()
    states = {id_: row["state"] for id_, row in asked.rows().items()}
    assert states == {"waits": "unsent", "silent": "unanswered"}


def test_passes_take_page_after_page_and_those_of_the_young_leave_out_the_rest(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "PAGE", 2)
    asked = Asked(outbox_, "a", "b", "c", "d", "e")
    for id_ in "abcde":
        asked.status(id_, State.DONE)
    outbox_.run("UPDATE :schema.requests SET sent_at = now() - interval '1 h' WHERE id < 'd'")
    assert asked.settling.page(asked.connection, 60.0)
    assert not asked.settling.page(asked.connection, 60.0)
    assert [row["id"] for row in outbox_.rows()] == ["a", "b", "c"]
    assert asked.settling.page(asked.connection)
    assert not asked.settling.page(asked.connection)
    assert outbox_.rows() == []


def test_a_pass_takes_as_many_answers_at_once_as_there_is_room_for(outbox_: Outbox) -> None:
    """Of rows and of records, whose results may be in their statuses alone."""
    large = b'"%b"' % (b"x" * 3_000_000)
    asked = Asked(outbox_, *"abcde")
    for id_ in "abcde":
        asked.status(id_, State.DONE, result=large)
    assert asked.settling.page(asked.connection)
    assert [row["id"] for row in outbox_.rows()] == ["d", "e"]
    assert not asked.settling.page(asked.connection)
    assert outbox_.rows() == []
    asked.add(*"fghij")
    asked.send()
    for id_ in "fghij":
        asked.status(id_, State.DONE, result=large)
    at = datetime.now(UTC)
    told = [Result(id_, "t", State.DONE, "ok", None, at, result_omitted=True) for id_ in "fghij"]
    left = asked.settling.records(asked.connection, told)
    assert [key.id for key in left] == [row["id"] for row in outbox_.rows()]
    assert len(left) == 2
    assert asked.settling.records(asked.connection, told) == []
    assert outbox_.rows() == []


class PlayedSource:
    """A results topic with what a test puts into it."""

    away = None

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.polled = self.committed = 0

    def poll(self, timeout: float) -> list[Result]:
        time.sleep(min(timeout, 0.01))
        self.polled += 1
        found, self.results = self.results, []
        return found

    def position(self) -> Any:
        return [self.polled]

    def commit(self, position: Any) -> None:
        [self.committed] = position

    def serve(self, database: str) -> None: ...

    def close(self) -> None: ...


def test_a_record_waits_for_the_mark_of_its_row_and_statuses_know_better(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "conflict")
    asked.status("conflict", State.DONE, fingerprint=b"x" * 16)
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {}, request_id="early")
    source = PlayedSource()
    loop = RecordLoop(outbox_.url, "default", source, asked.settling)  # type: ignore[arg-type]
    at = datetime.now(UTC)
    source.results = [
        Result(id_, "t", State.DONE, "ok", None, at) for id_ in ("early", "conflict", "nobody")
    ]
    loop.start()
    eventually(lambda: "conflict" not in {row["id"] for row in outbox_.rows()})
    polled = source.polled
    eventually(lambda: source.polled > polled + 2)
    assert (asked.rows()["early"]["state"], source.committed) == ("unsent", 0)
    asked.send()
    eventually(lambda: source.committed)
    assert {id_: row["state"] for id_, row in asked.rows().items()} == {
        "early": "done",
        "conflict": "undeliverable",
    }
    loop.stop()
    assert loop.join(30)


def test_what_is_done_is_committed_while_something_is_kept_all_the_time(outbox_: Outbox) -> None:
    asked = Asked(outbox_)
    source = PlayedSource()
    loop = RecordLoop(outbox_.url, "default", source, asked.settling)  # type: ignore[arg-type]
    at = datetime.now(UTC)
    loop.start()
    for id_, next_id in (("a", "b"), ("b", "c"), ("c", "d")):
        if not outbox_.rows():
            asked.add(id_)
            source.results = [Result(id_, "t", State.DONE, "ok", None, at)]
        asked.add(next_id)
        committed, polled = source.committed, source.polled
        eventually(lambda before=polled: source.polled > before + 2, 20)
        source.results = [Result(next_id, "t", State.DONE, "ok", None, at)]
        eventually(lambda: not source.results, 20)
        asked.send(id_)
        eventually(lambda done=id_: asked.rows()[done]["state"] == "done", 20)
        assert asked.rows()[next_id]["state"] == "unsent"
        eventually(lambda before=committed: source.committed > before, 20)
    loop.stop()
    assert loop.join(30)


def test_records_are_kept_for_a_while_and_the_later_one_counts() -> None:
    kept, at = KeptRecords(), datetime.now(UTC)
    first = Result("a", "t", State.FAILED, "x", None, at)
    second = Result("a", "t", State.DONE, "ok", None, at + timedelta(seconds=1))
    kept.add([second, first], 0.0)
    assert kept.look(1.0) == [second]
    kept.add([replace(second, type="other", at=second.at + timedelta(seconds=1))], 0.0)
    assert len(kept) == 2
    kept.keep([key for key in sorted(kept.keys()) if key.type == "t"])
    assert kept.look(1.0) == [second]
    assert kept.look(PATIENCE) == []


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_callback_that_fails_is_logged_and_disturbs_nothing(
    outbox_: Outbox, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    asked = Asked(outbox_, "a", "b")

    def broken(ended: Ended) -> None:
        raise error(ended.id)

    asked.settling = Settling(
        outbox_.schema, "default", asked.store, POLICY, inbox=False, settled=broken
    )
    for id_ in "ab":
        asked.status(id_, State.DONE)
    asked.settle()
    assert {row["state"] for row in asked.rows().values()} == {"done"}
    assert caplog.text.count("the callback failed") == 2


def test_an_id_that_is_added_while_its_row_ends_holds_up_no_end(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "again", "b")
    for id_ in ("again", "b"):
        asked.status(id_, State.DONE)
    with psycopg.connect(outbox_.url) as adding:
        adding.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        adding.execute("SELECT now()")  # it sees nothing that is committed from here on
        asked.settle()
        outbox.add(adding, "t", {}, request_id="again")
    assert [row["id"] for row in outbox_.rows()] == ["again"]
    asked.send()
    asked.status("again", State.DONE)
    asked.settle()
    assert outbox_.rows() == []
    inbox = outbox_.rows("SELECT id FROM :schema.inbox ORDER BY n")
    assert [row["id"] for row in inbox] == ["again", "b"]
    assert [ended.id for ended in asked.told] == ["again", "b"]
