"""What is plain is told as by the way of all the others; against PostgreSQL test_plain asks it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from feedback.contract.record import Record
from processing import App, Message, RawMessage, Request
from processing.testing.memory_access import columns, done_row_of
from processing.worker.calls import DONE
from processing.worker.plain import is_plain, plain_rows, plain_statuses
from processing.worker.reading import Limits, read_task
from processing.worker.records import row_of, status_of
from processing.worker.task import Task

SENT = 1_700_000_000.0
NOW = datetime.fromtimestamp(SENT + 10, UTC)
LIMITS = Limits(60.0, 1000)


@pytest.fixture
def app() -> App:
    made = App()

    @made.handler("pay")
    def pay(payload: Any, request: Request[Any]) -> None: ...

    @made.handler("own", fingerprint=lambda payload: payload["of"], status_ttl=7)
    def own(payload: Any) -> None: ...

    @made.decoder("decoded")
    def decode(message: RawMessage) -> Message:
        return Message(id="from bytes", type="pay", payload=message.value)

    made.start_worker()
    return made


def done(app: App, kind: str, topic: str = "t", *headers: tuple[str, bytes], sent: float = SENT,
         took: float = 0.25, result: bytes | None = None) -> Task:  # fmt: skip
    named: list[tuple[str, bytes | None]] = [("ce_id", b"id \xc3\xa9"), ("ce_type", kind.encode())]
    value = b'{"of": "this"}'
    record: Record = (
        topic, 3, 42, int(sent * 1000), b"\x00k", value, [*named, *headers], kind, None,
    )  # fmt: skip
    task = read_task(app, 0, record, LIMITS)
    assert isinstance(task, Task)
    task.started, task.seconds, task.used = SENT + 0.5, took, 1
    task.end(DONE, result)
    return task


def test_it_is_told_as_all_the_others_are(app: App) -> None:
    tasks = [
        done(app, "pay"),
        done(app, "pay", result=b'{"a":1}'),
        done(app, "pay", took=0.0),
        done(app, "pay", "t", ("ce_replyto", b"channel"), ("content-type", b"application/json")),
        done(app, "own", result=b"[1]"),
        done(app, "pay", "decoded"),
        done(app, "pay", sent=-1.0),
        done(app, "pay", sent=SENT + 5_000_000_000),  # by a clock of another century
    ]
    for task in tasks:
        assert is_plain(task)
        row = row_of(task, NOW)
        for final in (True, False):
            told = status_of(task, row, NOW, final=final)
            assert plain_statuses([task], rows=final) == [told]
        found, general = done_row_of(plain_rows([task])[0]), columns(row)
        if task.envelope.time > SENT:  # it counts as now, which is not the same now twice
            assert abs(found.pop("produced_at") - general["produced_at"]).total_seconds() < 60
        assert found == {name: general[name] for name in found}


def test_what_more_is_to_be_said_of_is_not_plain(app: App) -> None:
    task = done(app, "pay")
    assert is_plain(task)
    task.request({}).follow_up("pay", {})
    assert not is_plain(task)
    task.hand_out()  # another entry, which has asked for nothing yet
    assert is_plain(task)
    task.lost = 1
    assert not is_plain(task)


def test_what_two_entries_ask_for_is_not_mixed(app: App) -> None:
    task = done(app, "pay")
    first = task.request(task.hand_out())
    first.follow_up("pay", {})
    second = task.request(task.hand_out())
    first.follow_up("pay", {})  # of a thread that the first one has left behind
    assert not task.follow_ups
    second.follow_up("pay", {}, request_id="second")
    assert [asked.id for asked in task.follow_ups] == ["second"]
