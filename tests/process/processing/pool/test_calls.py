"""Calls of `async def` handlers in real workers, on real services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from feedback.contract.record import VALUE, Record
from tests.support.workers import Workers

Make = Callable[..., Workers]
APP = "tests.support.calling_app:app"


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with a line for each entry of a handler."""
    path = tmp_path / "entries"
    path.touch()
    monkeypatch.setenv("CALLING_ENTRIES", str(path))
    return path


def entered(path: Path) -> Counter[str]:
    return Counter(path.read_text().split())


def names(word: str, count: int) -> list[str]:
    return [f"{word}-{n}" for n in range(count)]


def running(workers: Workers) -> list[str]:
    return sorted(row["request_id"] for row in workers.supervisor.running_requests())


def statuses(workers: Workers, ids: list[str]) -> dict[str, Any]:
    """Once all of them are settled."""

    def settled() -> bool:
        return all((s := workers.status(i)) is not None and s[0] != "running" for i in ids)

    workers.until(settled)
    return {i: workers.status(i) for i in ids}


def test_calls_are_open_together_and_each_has_its_own_end(
    make: Make, entries: Path, tmp_path: Path
) -> None:
    workers = make(app=APP)
    workers.start()
    gate = tmp_path / "gate"
    wait = f"await {gate}"
    calls, looks = names("call", 20), names("look", 20)
    workers.submit(*calls, do=wait, kind="call")
    workers.submit(*looks, do=wait, kind="look")
    workers.until(lambda: len(running(workers)) == 40)
    # What goes wrong beside them is nobody else's.
    ends = {
        "late": ("in_doubt", "timeout"), "tidy": ("done", "ok"), "reject": ("rejected", "no_funds"),
        "raise": ("in_doubt", "handler_error"), "cancelled": ("in_doubt", "cancelled"),
    }  # fmt: skip
    workers.submit("late", do=wait, kind="call", ce_timeout="1")
    workers.submit("tidy", do="tidy", kind="call", ce_timeout="1")
    workers.submit("raise", do="raise", kind="call")
    workers.submit("reject", do="reject", kind="call")
    workers.submit("cancelled", do=wait, kind="call")
    workers.submit("late-look", do=wait, kind="look", ce_timeout="1")
    workers.submit("cancelled-look", do=wait, kind="look")
    workers.until(lambda: {"cancelled", "cancelled-look"} <= set(running(workers)))
    workers.cancel("cancelled", "ann: wrong amount")
    workers.cancel("cancelled-look", "ann: wrong question")
    workers.until(lambda: {i: workers.states().get(i) for i in ends} == ends)
    workers.until(lambda: workers.states().get("late-look") == ("waiting", "timeout"))
    workers.until(lambda: workers.status("cancelled-look") == ("cancelled", "cancelled"))
    # The connection under the open calls breaks.
    (worker,) = workers.supervisor._pool.workers.values()
    pid, _ = worker.backends[-1]
    assert workers.query(f"SELECT pg_terminate_backend({pid}, 10000)") == [(True,)]
    gate.touch()
    workers.until(lambda: workers.supervisor.in_hand == 0)
    done = ("done", "ok")
    assert {i: workers.states()[i] for i in calls} == dict.fromkeys(calls, done)
    assert statuses(workers, [*calls, *looks]) == dict.fromkeys([*calls, *looks], done)
    seen = entered(entries)
    assert {seen[i] for i in [*calls, *looks, *ends]} == {1}
    assert (len(workers.seen), workers.supervisor.stats().deaths) == (1, 0)


def crashed(workers: Workers) -> set[str]:
    """Those that are known to have crashed their worker."""
    rows = workers.query(f"SELECT id FROM {workers.schema}.requests WHERE crashes > 0")
    return {row[0] for row in rows}


@pytest.mark.parametrize(
    "harm",
    [*(pytest.param(h, marks=pytest.mark.long) for h in ("segfault", "stubborn")), "block 3600"],
)
def test_what_kills_a_worker_is_found_out_and_no_call_is_made_twice(
    make: Make, entries: Path, tmp_path: Path, harm: str
) -> None:
    workers = make(app=APP)
    workers.start()
    gate = tmp_path / "gate"
    calls, looks = names("call", 5), names("look", 5)
    workers.submit(*calls, do=f"await {gate}", kind="call")
    workers.submit(*looks, do=f"await {gate}", kind="look")
    workers.until(lambda: len(running(workers)) == 10)
    timeout = {} if harm == "segfault" else {"ce_timeout": "1"}
    workers.submit("bad", do=harm, kind="call", **timeout)
    workers.until(lambda: workers.supervisor.stats().deaths == 1)
    gate.touch()
    workers.until(lambda: workers.supervisor.in_hand == 0)
    code = "worker_died" if harm == "segfault" else "timeout"
    doubt = dict.fromkeys(calls, ("in_doubt", "worker_died"))
    states = workers.states()
    assert {i: states[i] for i in [*calls, "bad"]} == {**doubt, "bad": ("in_doubt", code)}
    assert crashed(workers) == ({"bad"} if harm == "segfault" else set())
    assert statuses(workers, looks) == dict.fromkeys(looks, ("done", "ok"))
    seen = entered(entries)
    assert {seen[i] for i in [*calls, "bad"]} == {1}
    assert {seen[i] for i in looks} == {2}
    assert workers.supervisor.stats().deaths == 1


@pytest.mark.long
def test_a_loop_that_is_blocked_while_no_call_is_open_is_found_by_those_that_are_to_begin(
    make: Make, entries: Path
) -> None:
    workers = make(app=APP)
    workers.start()
    workers.submit("blocks", do="block_later 3600", kind="look")
    workers.until(lambda: entered(entries)["blocked"] == 1 and workers.supervisor.in_hand == 0)
    calls, looks = names("call", 3), names("look", 3)
    workers.submit(*calls, kind="call", ce_timeout="1")
    workers.submit("checked", kind="checked", ce_timeout="1")
    workers.submit(*looks, kind="look", ce_timeout="1")
    workers.until(lambda: len(running(workers)) == 7)
    workers.until(lambda: workers.supervisor.in_hand == 0)
    doubt = dict.fromkeys(calls, ("in_doubt", "worker_died"))
    states = workers.states()
    assert {i: states[i] for i in calls} == doubt
    assert states["checked"] == ("failed", "worker_died"), "nothing happened, says its check"
    assert crashed(workers) == set()
    assert statuses(workers, looks) == dict.fromkeys(looks, ("done", "ok"))
    seen = entered(entries)
    assert {seen[i] for i in [*calls, "checked"]} == {0}
    assert {seen[i] for i in looks} == {1}
    assert workers.supervisor.stats().deaths == 1


@pytest.mark.long
def test_pure_calls_that_kill_their_worker_again_are_dead_and_checks_are_asked(
    make: Make, entries: Path
) -> None:
    workers = make(app=APP)
    workers.start()
    workers.submit(*names("look", 3), do="sleep 0.5", kind="look")
    workers.submit("bad", do="segfault", kind="look")
    workers.submit("checked", do="sleep 0.5", kind="checked")
    workers.until(lambda: workers.supervisor.in_hand == 0)
    states = workers.states()
    assert states["bad"] == ("dead", "worker_died")
    assert statuses(workers, names("look", 3)) == dict.fromkeys(names("look", 3), ("done", "ok"))
    # NotDone, and no attempts are left for it.
    assert states["checked"] in {("failed", "worker_died"), ("done", "ok")}
    assert workers.supervisor.stats().deaths == 2


def test_at_a_stop_open_calls_end_and_what_has_not_started_waits(
    make: Make, entries: Path, tmp_path: Path
) -> None:
    workers = make(app=APP)
    workers.start()
    gate = tmp_path / "gate"
    ids = names("call", 35)  # five more than may be open
    workers.submit(*ids, do=f"await {gate}", kind="call")
    workers.until(lambda: len(running(workers)) == 30)
    workers.supervisor.refuse_unstarted("shutdown")
    workers.until(lambda: workers.supervisor.in_hand == 30)
    gate.touch()
    workers.until(lambda: workers.supervisor.in_hand == 0 and not workers.pids)
    assert Counter(workers.states().values()) == {("done", "ok"): 30, ("waiting", "parked"): 5}
    assert entered(entries)["closed"] == 1, "the hook has closed what it opened"


def structured(workers: Workers, id: str, do: str, **fields: str) -> Record:
    """The same as a whole CloudEvent, whose type nobody sees before it is read."""
    record = workers.record(id, do)
    value = orjson.loads(record[VALUE] or b"")
    event = {"specversion": "1.0", "id": id, "source": "/", "type": "call", "data": value, **fields}
    headers: list[tuple[str, bytes | None]] = [("content-type", b"application/cloudevents+json")]
    return (*record[:VALUE], orjson.dumps(event), headers, None, None)  # type: ignore[return-value]


def test_an_event_whose_type_is_not_seen_is_waited_for_and_still_has_its_deadline(
    make: Make, entries: Path
) -> None:
    workers = make(app=APP)
    workers.start()
    records = [structured(workers, "late", "sleep 3600", timeout="1"), structured(workers, "a", "")]
    workers.supervisor.submit(records)
    workers.until(lambda: workers.supervisor.in_hand == 0)
    assert workers.states() == {"late": ("in_doubt", "timeout"), "a": ("done", "ok")}
    assert workers.supervisor.stats().deaths == 0
    assert entered(entries) == {"late": 1, "a": 1}


def test_at_the_end_of_the_grace_open_calls_are_told_to_end(make: Make, entries: Path) -> None:
    workers = make(app=APP)
    workers.start()
    calls, looks = names("call", 5), names("look", 5)
    workers.submit(*calls, do="sleep 3600", kind="call")
    workers.submit(*looks, do="sleep 3600", kind="look")
    workers.until(lambda: len(running(workers)) == 10)
    workers.supervisor.refuse_unstarted("shutdown")
    workers.supervisor.terminate()
    workers.until(lambda: workers.supervisor.in_hand == 0 and not workers.pids)
    states = workers.states()
    assert {i: states[i] for i in calls} == dict.fromkeys(calls, ("in_doubt", "shutdown"))
    assert {i: states[i] for i in looks} == dict.fromkeys(looks, ("waiting", "parked"))
    assert workers.supervisor.stats().deaths == 0
