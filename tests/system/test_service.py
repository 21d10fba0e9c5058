"""The whole service on the real stack: what a producer sees, what the database holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from feedback.metrics.names import ShownBy
from tests.support.metrics import check_with_promtool, listed, scrape, scraped, shown
from tests.support.programs import ROOT
from tests.support.promql import kinds_of
from tests.support.queries_asked import asked_in_vain
from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

PARTITIONS = 4
CALLERS = 20


ENDS = {
    "raises": ("failed", "handler_error"),
    "rejects": ("rejected", "no_funds"),
    "retries": ("waiting", "retry"),
    "exits": ("failed", "handler_error"),
    "unjson": ("failed", "handler_error"),
    "commits": ("failed", "handler_error"),
    "rolls_back": ("in_doubt", "transaction_ended"),
    "closes": ("failed", "transaction_ended"),
    "eats": ("failed", "handler_error"),
    "sleeps": ("failed", "timeout"),
    "dies": ("dead", "worker_died"),
    "segfaults": ("dead", "worker_died"),
    "external": ("done", "ok"),
    "external_dies": ("in_doubt", "worker_died"),
    "nobody": ("waiting", "unknown_type"),
}


def test_every_end_has_its_name_and_the_neighbours_are_unharmed(bench: Bench) -> None:
    instance = bench.start(ONCEPOOL_WORKER_MEMORY_LIMIT="768MiB")
    warm = bench.outcome("effect", {"table": bench.table})
    assert warm.state == "done"
    neighbours = []
    bad = {}
    for kind in ENDS:
        bad[bench.client.submit(kind, {"n": 1})] = kind
        neighbours += [bench.client.submit("effect", {"table": bench.table}) for _ in range(5)]
    seen = {}
    for request, kind in bad.items():
        seen[kind] = bench.seen(request)
    assert seen == ENDS
    assert {bench.client.wait(n, WAIT).state for n in neighbours} == {"done"}
    rows = bench.query(f"SELECT count(*), count(DISTINCT id) FROM {bench.table}")
    assert rows == [(1 + len(neighbours), 1 + len(neighbours))]
    (raised,) = (request for request, kind in bad.items() if kind == "raises")
    failed = instance.log.partition("request_id=" + raised)[2].partition("handler failed")[0]
    assert "type=raises" in failed
    assert 'raise ValueError("boom")' in failed
    # A flood of them is told as a trickle, and how many were left out.
    flood = [bench.client.submit("raises", {}) for _ in range(200)]
    assert {bench.client.wait(request, WAIT).state for request in flood} == {"failed"}
    eventually(lambda: bench.outcome("raises") and "lines left out" in instance.log, WAIT)
    assert instance.log.count("ValueError: boom") < len(flood)
    assert bench.outcome("pure", {"n": 10}).result == 45
    assert bench.outcome("batch", {"table": bench.table, "n": 7}).result == 7
    check_metrics(instance.health_port, 1 + len(neighbours))
    assert bench.instances[0].stop() == 0


NOT_PLAYED = {
    "oncepool_dead_letters_total{reason=conflict}",
    "oncepool_intake_closed{reason=~database}",
    "oncepool_intake_closed{reason=~workers}",
    "oncepool_rebalances_total{event=lost}",
}
"""What the deployed queries ask for and nobody has done here."""


def check_metrics(port: int, effects: int) -> None:
    """What a scrape says of all that."""
    ends = {(kind, *ENDS[kind]) for kind in ("raises", "rejects", "retries", "sleeps", "external")}
    ends |= {("other", "waiting", "unknown_type"), ("dies", "dead", "worker_died")}

    def told() -> bool:
        counted = {
            (one.labels["type"], one.labels["state"], one.labels["code"])
            for one in scraped(port)
            if one.name == "oncepool_requests_total"
        }
        # Of the journal it is told within seconds of the first scrape.
        dead = shown(port, "oncepool_journal_rows", what="dead")
        return ends <= counted and dead >= 2 and shown(port, "oncepool_consumer_lag") == 0

    eventually(told, WAIT, lambda: scrape(port))
    assert kinds_of(scrape(port)) == listed(ShownBy.RUN)
    check_with_promtool(scrape(port))
    assert asked_in_vain(scrape(port)) <= NOT_PLAYED
    done = {"type": "effect", "state": "done", "code": "ok"}
    assert shown(port, "oncepool_requests_total", **done) == effects
    for name in ("run", "wait", "done"):
        assert shown(port, f"oncepool_{name}_seconds_count", type="effect") > 0
    assert shown(port, "oncepool_worker_deaths_total", cause="SIGSEGV") >= 1
    assert shown(port, "oncepool_chunk_requests_count") > 1
    assert shown(port, "oncepool_messages_confirmed_total") > effects
    assert shown(port, "oncepool_group_joined") == 1
    assert shown(port, "oncepool_journal_rows", what="in_doubt") == 2
    assert shown(port, "oncepool_journal_rows", what="waiting") >= 1


def test_resends_and_conflicts(bench: Bench) -> None:
    bench.start()
    payload = {"table": bench.table, "n": 1}
    ids = [f"order-{n}" for n in range(200)]
    for _ in range(3):
        for request in ids:
            bench.client.submit("effect", payload, request_id=request)
    for request in ids:
        assert bench.client.wait(request, WAIT).state == "done"
    changed = b'{"table":"elsewhere","n":2}'
    Raw(bench).send("order-0", {"ce_id": b"order-0", "ce_type": b"effect"}, changed)
    letters = f"SELECT reason, request_id FROM {bench.schema}.dead_letters"
    eventually(lambda: bench.query(letters) == [("conflict", "order-0")], WAIT)
    status = bench.status("order-0")
    assert status is not None
    assert (status.state, status.code) == ("done", "ok")
    assert bench.query(f"SELECT count(*) FROM {bench.table}") == [(200,)]
    resends = f"SELECT sum(resends) FROM {bench.schema}.requests"
    eventually(lambda: bench.query(resends) == [(400,)], WAIT)


@pytest.mark.long  # the chaos run shows it too
def test_a_killed_worker_and_a_killed_instance_run_nothing_twice(bench: Bench) -> None:
    first = bench.start()
    bench.start()
    payload = {"table": bench.table}
    ids = [f"kill-{n}" for n in range(3000)]
    for position, request in enumerate(ids):
        bench.client.submit("effect", payload, request_id=request)
        if position == 1000:
            os.kill(first.workers()[0], signal.SIGKILL)
        if position == 2000:
            first.process.kill()
    bench.client.flush(30)

    def call(request: str) -> str:
        status = bench.client.call(
            "effect", payload, request_id=request, timeout=WAIT, resend_after=5
        )
        return status.state

    with ThreadPoolExecutor(CALLERS) as callers:
        assert set(callers.map(call, ids)) == {"done"}
    rows = bench.query(f"SELECT count(*), count(DISTINCT id) FROM {bench.table}")
    assert rows == [(3000, 3000)]
    eventually(lambda: not first.workers())


def slow(bench: Bench, file: Path, seconds: float) -> str:
    """A request that a worker runs right now."""
    request = bench.client.submit("slow", {"file": str(file), "seconds": seconds})
    eventually(file.exists, WAIT, lambda: bench.instances[-1].log)
    return request


def stands(bench: Bench, request: str) -> tuple[str, str] | None:
    """State and code of a request as Redis has it now."""
    status = bench.status(request)
    return None if status is None else (str(status.state), status.code)


def test_shutdown_lets_what_runs_finish_and_exits_0(bench: Bench, tmp_path: Path) -> None:
    instance = bench.start()
    assert bench.outcome("slow", {"seconds": 0}).state == "done"
    request = slow(bench, tmp_path / "runs", 2)
    assert instance.stop() == 0
    assert bench.client.wait(request, WAIT).state == "done"


def test_a_second_signal_makes_the_end_quicker(bench: Bench, tmp_path: Path) -> None:
    instance = bench.start(ONCEPOOL_GRACE="3600", ONCEPOOL_WORKERS="1", ONCEPOOL_READ_AGAIN="off")
    slow(bench, tmp_path / "runs", 3600)
    waiting = [bench.client.submit("slow", {"seconds": 0}) for _ in range(3)]
    bench.client.flush()
    eventually(lambda: bench.waiting() == 0, WAIT)  # it has them all
    for phase in ("draining", "refusing", "terminating", "killing"):
        instance.process.send_signal(signal.SIGINT)
        instance.says(f"phase={phase}")
    assert instance.process.wait(WAIT) == 3
    eventually(lambda: {stands(bench, name) for name in waiting} == {("waiting", "parked")}, WAIT)
    # Any other instance takes what was parked, without its producer's doing.
    bench.start()
    assert {bench.client.wait(name, WAIT).state for name in waiting} == {"done"}


def test_what_does_not_end_in_the_grace_is_killed_and_the_exit_code_says_so(
    bench: Bench, tmp_path: Path
) -> None:
    instance = bench.start(ONCEPOOL_GRACE="3", ONCEPOOL_WORKERS="1", ONCEPOOL_READ_AGAIN="off")
    running = slow(bench, tmp_path / "runs", 50)
    waiting = bench.client.submit("slow", {"seconds": 0})
    bench.client.flush()
    eventually(lambda: bench.waiting() == 0, WAIT)  # it has both
    assert instance.stop() == 3
    eventually(lambda: stands(bench, waiting) == ("waiting", "parked"), WAIT)
    # What was killed comes to rest as well, and its kill is no crash.
    rows = f"SELECT state, code, run, crashes FROM {bench.schema}.requests WHERE id = '{running}'"
    assert bench.query(rows) == [("waiting", "parked", 1, 0)]
    bench.start()
    assert bench.client.wait(waiting, WAIT).state == "done"


@pytest.mark.long
def test_an_app_that_cannot_be_imported_ends_the_service_with_its_traceback(bench: Bench) -> None:
    environment = {**os.environ, **bench.environment, "ONCEPOOL_APP": "tests.support.nowhere:app"}
    done = subprocess.run(
        [sys.executable, "-m", "consumer", "run"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "tests.support.nowhere" in done.stderr
