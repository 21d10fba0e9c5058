"""Effects outside the database when what runs them dies: in doubt, and never a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

SWEEPS = {"ONCEPOOL_SWEEP_INTERVAL": "0.3", "ONCEPOOL_WORKERS": "1"}


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

    payload = {"file": str(file), "seconds": 25}
    again = bench.client.call("checked", payload, request_id=request, timeout=WAIT)

    assert (again.state, again.result) == ("done", "found")
    assert file.read_text() == "charged\n"


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
