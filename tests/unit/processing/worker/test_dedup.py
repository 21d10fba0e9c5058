"""What a look-up says of requests that were looked up, and run, before."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from feedback.contract.record import Record, read_again
from feedback.contract.states import HANDLER_ERROR, INSTANCE_DIED, State
from feedback.journal.rows import StoredRequest
from processing import App, Message, RawMessage
from processing.worker.calls import DONE
from processing.worker.dedup import Dedup, groups, sort_out
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TYPES = ("once", "often")


@pytest.fixture
def app() -> App:
    app = App()

    def handle(payload: int) -> None: ...

    app.handler("once", redelivery=False)(handle)
    app.handler("often")(handle)
    app.handler("pure", effect="none", redelivery=False)(handle)
    app.handler("own", fingerprint=lambda payload: "order")(handle)
    app.start_worker({})
    return app


def read(app: App, kind: str, *, begun: bool | None = None, trusted: bool = True) -> Task:
    """`begun`: read again, of those that may have been begun; None: it comes for the first time."""
    pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", kind.encode())]
    record: Record = ("topic", 0, 7, 1_700_000_000_000, None, b"1", pairs, kind, None)
    if begun is not None:
        record = read_again(record, begun=begun)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100), trusted=trusted)
    assert isinstance(task, Task)
    return task


def failed(task: Task, code: str, offset: int, run: int) -> StoredRequest:
    return StoredRequest(
        "a", task.envelope.type, State.FAILED, code, 1, run, 0, task.fingerprint, None, None, None,
        None, None, "topic", 0, offset, 1, None, None, None, NOW, None, NOW, NOW, None, None, False,
    )  # fmt: skip


def test_what_only_a_type_can_compare_is_no_conflict_whatever_its_row_says(app: App) -> None:
    """Rows of ended requests said once that producers can make any fingerprint."""
    task = read(app, "own", trusted=False)
    assert task.fingerprint is None
    row = failed(task, HANDLER_ERROR, 3, run=1)._replace(state=State.DONE, fingerprint=b"its own")
    assert look_up(task, row).answered == [task]


def look_up(task: Task, row: StoredRequest | None) -> Dedup:
    found = {} if row is None else {"a": row}
    return sort_out([task], found, set(), lambda _: nullcontext())


def run(task: Task) -> None:
    """Its handler returned, and its row could not be written."""
    task.started = 1_700_000_000.0
    task.end(DONE)


@pytest.mark.parametrize("code, offset", [(INSTANCE_DIED, 7), (HANDLER_ERROR, 9)])
def test_what_others_ended_while_it_ran_is_not_entered_again(
    app: App, code: str, offset: int
) -> None:
    """The next owner of its partition, which ran a resend as well, or not."""
    task = read(app, "once")
    assert look_up(task, None).fresh == [task]
    run(task)
    assert look_up(task, failed(task, code, offset, run=1)).answered == [task]


def test_what_others_ended_after_an_earlier_failure_is_not_entered_again(app: App) -> None:
    task = read(app, "once")
    assert look_up(task, failed(task, HANDLER_ERROR, 3, run=1)).fresh == [task]
    run(task)
    assert look_up(task, failed(task, INSTANCE_DIED, 7, run=2)).answered == [task]


def test_a_resend_of_what_failed_runs(app: App) -> None:
    """Also where the chunk is rolled back and looks up the same row once more."""
    for kind in TYPES:
        task = read(app, kind)
        row = failed(task, HANDLER_ERROR, 3, run=1)
        assert look_up(task, row).fresh == [task]
        run(task)
        assert look_up(task, row).fresh == [task]


def test_other_types_are_entered_again(app: App) -> None:
    task = read(app, "often")
    look_up(task, None)
    run(task)
    assert look_up(task, failed(task, HANDLER_ERROR, 9, run=1)).fresh == [task]


def test_what_nobody_has_begun_runs_after_a_hand_over(app: App) -> None:
    """Of pure computation nobody can tell: it leaves no row either way."""
    assert look_up(task := read(app, "once", begun=False), None).fresh == [task]
    for task in (read(app, "once", begun=True), read(app, "pure", begun=False)):
        assert look_up(task, None).ended == [task]
        assert task.outcome is not None
        assert (task.outcome.state, task.outcome.code) == (State.FAILED, INSTANCE_DIED)


def test_keys_of_a_decoder_leave_the_order_of_the_messages_keys() -> None:
    """A lane is the key of the Kafka message: it is handed out before any decoder has run."""

    app = App()
    app.handler("often")(lambda payload: None)

    @app.decoder("theirs")
    def decode(raw: RawMessage) -> Message:
        return Message(f"r-{raw.offset}", "often", 1, key=raw.value)

    app.start_worker({})
    limits = Limits(default_timeout=60, max_payload=100)
    keys = [(b"b", b"z"), (b"b", b"y"), (None, b"a"), (b"", b"z"), (b"", b"c"), (None, b"Z")]
    tasks: list[Task] = []
    for offset, (key, decoded) in enumerate(keys):
        record: Record = ("theirs", 0, offset, 1_700_000_000_000, key, decoded, [], "often", None)
        task = read_task(app, offset, record, limits)
        assert isinstance(task, Task)
        tasks.append(task)
    [together] = groups(tasks, "key")
    assert [task.envelope.offset for task in together] == [3, 4, 5, 2, 0, 1]
