"""What expires while it waits in a worker for those ahead of it is not started any more."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from feedback.contract.times import moment
from processing import Request
from processing.worker import task
from stack import Stack
from tests.support.each_kind import each_kind
from tests.support.executor import Bench

EXPIRES = moment(2_000_000_010).isoformat()
SLOW = {"takes": 20}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """By which it is seen what has expired."""
    made = SimpleNamespace(now=2_000_000_000.0)
    monkeypatch.setattr(task, "time", SimpleNamespace(time=lambda: made.now))
    return made


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, ran: list[str], clock: SimpleNamespace) -> Iterator[Bench]:
    """A payload says how many seconds its handler takes, if any."""

    def run(request: Request[Any]) -> None:
        ran.append(request.id)
        clock.now += request.payload.get("takes", 0)

    made = Bench(each_kind(run), stack.database, schema)
    yield made
    made.executor.close()


@pytest.mark.parametrize("kind", ["one", "piped", "plain", "charge", "many"])
def test_it_is_rejected_and_its_neighbours_run(bench: Bench, ran: list[str], kind: str) -> None:
    late = bench.record("b", kind, {}, key=b"k", ce_expirytime=EXPIRES)
    report = bench.run(
        bench.record("a", "one", SLOW, key=b"k"), late, bench.record("c", kind, {}, key=b"k")
    )
    assert (ran, report.returned, report.unclear) == (["a", "c"], [], [])
    assert bench.rows() == {
        "a": ("done", "ok"),
        "b": ("rejected", "expired"),
        "c": ("done", "ok"),
    }
    bench.run(late)
    assert ran == ["a", "c"]


def test_so_is_pure_computation(bench: Bench, ran: list[str]) -> None:
    bench.run(
        bench.record("a", "pure", SLOW),
        bench.record("b", "pure", {}, ce_expirytime=EXPIRES),
        bench.record("c", "pure", {}),
    )
    assert ran == ["a", "c"]
    assert bench.state("b") == ("rejected", "expired")


@pytest.mark.parametrize("kind", ["one", "many"])
def test_alone_it_is_rejected_as_well(bench: Bench, ran: list[str], kind: str) -> None:
    bench.run(
        bench.record("a", "one", SLOW, key=b"k"),
        bench.record("b", kind, {}, key=b"k", ce_expirytime=EXPIRES),
    )
    assert (ran, bench.rows()["b"]) == (["a"], ("rejected", "expired"))
