"""Effects outside the database when what runs them dies: in doubt, and never a second time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Commands
from tests.support.recording_server import RecordingServer
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

SWEEPS = {"ONCEPOOL_SWEEP_INTERVAL": "0.3", "ONCEPOOL_WORKERS": "1"}


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    made = RecordingServer()
    yield made
    made.close()


@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=pytest.mark.long)])
def test_an_instance_that_ends_leaves_its_call_in_doubt(
    bench: Bench, tmp_path: Path, end: str
) -> None:
    file = tmp_path / "charged"
    settings = {"ONCEPOOL_KAFKA_PROTOCOL": "consumer", "ONCEPOOL_GRACE": "1", **SWEEPS}
    first = bench.start(**settings)
    request = bench.charging(file, 25)
    if end == "killed":
        first.kill()
    else:
        assert first.stop() == 3
    # It may have happened. Where nobody can say that its worker is gone, its claim still stands.
    assert bench.states() == {"running" if end == "killed" else "in_doubt": 1}
    bench.start(**settings)
    if end == "killed":
        bench.expire_lease()
    status = bench.client.wait(request, WAIT)
    code = "worker_died" if end == "killed" else "shutdown"
    assert (status.state, status.code) == ("in_doubt", code)
    payload = {"file": str(file), "seconds": 25}
    again = bench.client.call("charges", payload, request_id=request, timeout=WAIT)
    assert again.state == "in_doubt"
    eventually(lambda: bench.query(f"SELECT resends FROM {bench.schema}.requests") == [(1,)], WAIT)
    assert file.read_text() == "charged\n"


def test_a_call_gets_what_the_check_finds_out(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "charged"
    first = bench.start(ONCEPOOL_KAFKA_PROTOCOL="consumer", **SWEEPS)
    request = bench.charging(file, 25, "checked")
    first.kill()
    bench.start(**SWEEPS)
    bench.expire_lease()
    assert bench.client.wait(request, WAIT).state == "in_doubt"
    # Its message is read again, which says so anew: what answers the call must not be that.
    assert bench.outcome("effect", {"table": bench.table}).state == "done"
    eventually(lambda: bench.said()["in_hand"] == 0)

    payload = {"file": str(file), "seconds": 25}
    again = bench.client.call("checked", payload, request_id=request, timeout=WAIT)

    assert (again.state, again.result) == ("done", "found")
    assert file.read_text() == "charged\n"


@pytest.mark.parametrize("end", ["cut off", "killed"])
def test_a_check_is_asked_though_nobody_sends_the_request_again(
    bench: Bench, tmp_path: Path, end: str
) -> None:
    file = tmp_path / "charged"
    settings = {"ONCEPOOL_CHECK_AFTER": "0.2", "ONCEPOOL_KAFKA_PROTOCOL": "consumer", **SWEEPS}
    first = bench.start(**settings)
    if end == "killed":
        request = bench.charging(file, 25, "checked")
        first.kill()
        bench.start(**settings)
        bench.expire_lease()
    else:
        request = bench.charging(file, 0, "checked", cut="off")
    eventually(lambda: bench.states() == {"done": 1}, WAIT, lambda: bench.instances[-1].log)
    eventually(lambda: bench.client.wait(request, WAIT).state == "done", WAIT)
    assert bench.client.wait(request, WAIT).result == "found"
    assert bench.query(f"SELECT run, resends FROM {bench.schema}.requests") == [(1, 0)]
    assert file.read_text() == "charged\n"


@pytest.mark.long
def test_a_check_that_ends_its_worker_is_asked_ever_more_rarely(
    bench: Bench, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    instance = bench.start(ONCEPOOL_CHECK_AFTER="0.1", **SWEEPS)
    request = bench.client.submit("deadly_check", {"asked": str(asked)})

    def times() -> int:
        return len(asked.read_text().split()) if asked.exists() else 0

    eventually(lambda: times() >= 2, WAIT, lambda: instance.log)
    # It goes on beside them, and a death is followed by no other one until its time comes again.
    assert bench.client.call("external", {}, timeout=WAIT).state == "done"
    lost = f"SELECT lost_claims FROM {bench.schema}.requests WHERE id = '{request}'"
    eventually(lambda: bench.query(lost) == [(times(),)], WAIT, lambda: instance.log)
    assert bench.states() == {"in_doubt": 1, "done": 1}
    assert instance.stop() == 0


def test_a_result_that_comes_after_the_lease_is_taken(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "charged"
    bench.start(**SWEEPS)
    # Calls that are killed for their time end long before their lease does.
    for kind, end in (("charges", ("in_doubt", "timeout")), ("checked", ("done", "ok"))):
        (tmp_path / kind).touch()  # which is all that the check looks at
        told = {"file": str(tmp_path / kind), "seconds": 25}
        late = bench.client.submit(kind, told, timeout=0.5)
        status = bench.client.wait(late, WAIT)
        assert (status.state, status.code) == end
    bench.query(f"DELETE FROM {bench.schema}.requests")
    request = bench.charging(file, 25, until=str(tmp_path / "in doubt"))
    bench.expire_lease()
    eventually(lambda: bench.states() == {"in_doubt": 1}, WAIT)
    (tmp_path / "in doubt").touch()
    eventually(lambda: bench.states() == {"done": 1}, WAIT)
    eventually(lambda: bench.client.wait(request, WAIT).state == "done", WAIT)
    assert file.read_text() == "charged\n"


@pytest.mark.long  # test_calls.py has each of these ends
def test_calls_that_are_open_together_end_each_in_its_own_way_and_none_is_made_twice(
    bench: Bench, oncepool: Commands, server: RecordingServer
) -> None:
    """Of `async def` handlers: one hangs, one is cancelled, the worker of the rest is killed."""
    instance = bench.start(ONCEPOOL_APP="tests.support.calling_app:app", ONCEPOOL_WORKERS="1")

    def call(name: str, kind: str = "call", what: str = "make", **more: float) -> str:
        told = {"do": f"tell {server.port} {what}"}
        return bench.client.submit(kind, told, request_id=name, **more)

    def came(*names: str) -> None:
        eventually(lambda: set(names) <= set(server.made), WAIT, lambda: instance.log)

    def ends(*names: str) -> dict[str, tuple[str, str]]:
        found = {name: bench.client.wait(name, WAIT) for name in names}
        return {name: (str(status.state), status.code) for name, status in found.items()}

    lost = [call(f"lost-{n}") for n in range(5)]
    checked = [call(f"checked-{n}", "checked") for n in range(2)]
    call("late", what="hang", timeout=3)
    call("typo", what="hang")
    came(*lost, *checked, "late", "typo")
    cancel = ("requests", "cancel", "typo", "--why", "a typo")
    eventually(lambda: oncepool(*cancel).exit_code == 0, WAIT, lambda: instance.log)
    expected = {"late": ("in_doubt", "timeout"), "typo": ("in_doubt", "cancelled")}
    assert ends("late", "typo") == expected
    # They have ended beside the others, which are still open.
    assert bench.states() == {"in_doubt": 2, "running": 7}

    [worker] = instance.workers()
    os.kill(worker, signal.SIGKILL)
    expected |= dict.fromkeys(lost, ("in_doubt", "worker_died"))
    expected |= dict.fromkeys(checked, ("done", "ok"))
    assert ends(*lost, *checked) == {name: expected[name] for name in (*lost, *checked)}
    server.answers.set()
    after = [call(f"after-{n}") for n in range(3)]
    expected |= dict.fromkeys(after, ("done", "ok"))
    assert ends(*after) == {name: expected[name] for name in after}

    # Sent again they are answered.
    call(lost[0])
    again = f"SELECT resends FROM {bench.schema}.requests WHERE id = '{lost[0]}'"
    eventually(lambda: bench.query(again) == [(1,)], WAIT)
    rows = bench.query(f"SELECT id, state, code FROM {bench.schema}.requests")
    assert {name: (state, code) for name, state, code in rows} == expected
    assert server.made == dict.fromkeys(expected, 1)
    assert instance.stop() == 0
