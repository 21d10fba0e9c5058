"""What becomes of a request whose worker died. Nothing is in the journal here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from feedback.contract.lost_starts import END_UNKNOWN, LOST
from feedback.contract.record import Record
from feedback.contract.states import State
from feedback.journal.rows import StoredRequest
from feedback.status.status import StatusWrite
from processing import App, NotDone
from processing.handlers.decoder import Skip
from processing.handlers.outcomes import Outcome
from processing.ipc.frames import Suspect
from processing.worker.calls import Calls
from processing.worker.chunk_run import ChunkRun
from processing.worker.crash_recovery import CrashRecovery, note_crashes
from processing.worker.effect_none import EffectNone
from processing.worker.effect_transaction import EffectTransaction
from processing.worker.interruption import lost
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task
from tests.support.executor import chunk_run

DIED = Suspect(None, (), (), crashes=1)
NEIGHBOUR_DIED = Suspect(None, (), ())


@pytest.mark.parametrize(
    "verdict, state, reason",
    [
        ("timeout", "failed", "it took longer than its timeout"),
        ("worker_died", "dead", "its worker died while it ran"),
        ("shutdown", "waiting", "the consumer stopped while it ran"),
    ],
)
def test_a_run_without_an_end_of_its_own_says_why(verdict: str, state: str, reason: str) -> None:
    outcome = lost(verdict)
    assert (outcome.state, outcome.reason) == (state, reason)


class EmptyJournal:
    """Session and rows in one: nothing is found."""

    def find(self, _cursor: Any, _ids: list[str]) -> dict[str, Any]:
        return {}

    def cursor(self) -> None: ...


class ClaimedJournal(EmptyJournal):
    """A call's claim is found, and what is written for it is kept."""

    def __init__(self) -> None:
        fields: dict[str, Any] = {
            **dict.fromkeys(StoredRequest._fields), "id": "a", "state": State.RUNNING, "run": 1,
            "crashes": 1, "token": "i-0",
        }  # fmt: skip
        self.row = StoredRequest(**fields)
        self.written: list[Task] = []

    def find(self, _cursor: Any, _ids: list[str]) -> dict[str, Any]:
        return {"a": self.row}

    def end_lost(
        self, task: Task, stored: Any, doubt: Outcome, not_done: Outcome | None, _chunk: ChunkRun
    ) -> None:
        task.stored = stored
        task.end(not_done or doubt)
        self.written.append(task)


class Bench:
    """Takes a suspect on the executor's way, up to where its handler would be entered."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.entered: list[str] = []
        app = self.app = App()
        for redelivery in (True, False):
            app.handler(f"transaction {redelivery}", redelivery=redelivery)(self._handler("tx"))
            app.handler(f"none {redelivery}", effect="none", redelivery=redelivery)(
                self._handler("none")
            )
            app.handler(f"external {redelivery}", effect="external", redelivery=redelivery)(
                self._handler("external")
            )
        app.handler("external checked", effect="external", check=lambda _: NotDone())(
            self._handler("external")
        )
        app.start_worker({})
        nothing: Any = EmptyJournal()
        calls = Calls(nothing, self._publish)
        self.none = EffectNone(EffectTransaction(nothing, calls, 10), self._publish)
        self.recovery = CrashRecovery(nothing, nothing, nothing, self._publish, nothing)

    def _handler(self, kind: str) -> Callable[[int], None]:
        def handle(payload: int) -> None:
            self.entered.append(kind)

        return handle

    def _publish(self, writes: list[StatusWrite]) -> None:
        self.told += [orjson.loads(write.value) for write in writes]

    def read(self, index: int, record: Record) -> Task | Skip:
        return read_task(self.app, index, record, Limits(default_timeout=60, max_payload=100))

    def take(self, kind: str, suspect: Suspect) -> tuple[list[Task], ChunkRun]:
        """What is left to be run, or written, by others than EffectNone."""
        pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", kind.encode())]
        record: Record = ("topic", 0, 7, 1_700_000_000_000, None, b"1", pairs, kind, None)
        task = self.read(0, record)
        assert isinstance(task, Task)
        note_crashes(task, suspect)
        chunk = chunk_run([record], suspect=suspect)
        rest = self.none.run_fresh([task], chunk)
        return self.recovery.settle(suspect, rest, chunk), chunk


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("suspect, reason", [(DIED, LOST), (NEIGHBOUR_DIED, END_UNKNOWN)])
def test_nothing_enters_a_handler_again_that_must_not_be_entered_twice(
    bench: Bench, suspect: Suspect, reason: str
) -> None:
    (task,), chunk = bench.take("transaction False", suspect)
    assert task.outcome is not None
    assert (task.outcome.state, task.outcome.code) == ("failed", "worker_died")
    assert task.outcome.reason == reason
    assert chunk.decided == {0}

    assert bench.take("none False", suspect)[0] == []
    assert [(s["state"], s["code"]) for s in bench.told] == [("failed", "worker_died")]
    assert bench.entered == []


@pytest.mark.parametrize("kind", ["transaction True", "external True", "external False"])
def test_what_left_nothing_behind_goes_on(bench: Bench, kind: str) -> None:
    """A call outside was not begun, or its claim would have been found."""
    (task,), chunk = bench.take(kind, DIED)
    assert (task.outcome, chunk.decided) == (None, set())


@pytest.mark.parametrize("suspect, crashes", [(DIED, 2), (NEIGHBOUR_DIED, 1)])
def test_a_call_is_charged_no_crash_of_its_neighbours(
    bench: Bench, suspect: Suspect, crashes: int
) -> None:
    journal: Any = ClaimedJournal()
    bench.recovery = CrashRecovery(journal, journal, journal, bench._publish, bench.read)
    assert bench.take("external checked", suspect._replace(tokens=("i-0",)))[0] == []
    [task] = journal.written
    assert task.crashes == crashes
    assert task.outcome is not None
    assert task.outcome.state == (State.DEAD if crashes == 2 else State.FAILED)


def test_pure_computation_is_done_again(bench: Bench) -> None:
    assert bench.take("none True", DIED)[0] == []
    assert bench.entered == ["none"]
    assert [s["state"] for s in bench.told] == ["done"]
