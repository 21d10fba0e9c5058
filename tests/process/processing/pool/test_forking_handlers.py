"""Processes that handlers and checks fork, which end as whatever they like."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.workers import Workers

Make = Callable[..., Workers]
FORKS = ("raise", "return", "and SIGTERM", "and SIGINT")


@pytest.mark.parametrize(
    "do",
    ["fork exit", *(pytest.param(f"fork {then}", marks=pytest.mark.long) for then in FORKS)],
)
def test_a_process_that_a_handler_forks_does_not_go_on_as_the_worker(make: Make, do: str) -> None:
    workers = make()
    workers.start()
    workers.warm()
    before = workers.pids
    workers.submit("forks", do=do, ce_timeout="30")
    workers.submit("next")
    workers.finish()
    assert workers.states() == dict.fromkeys(["forks", "next"], ("done", "ok"))
    workers.check_effects()
    assert workers.pids == before


@pytest.mark.parametrize("do", ["fork exit", pytest.param("fork return", marks=pytest.mark.long)])
def test_nor_does_one_that_a_check_forks(make: Make, do: str) -> None:
    workers = make()
    workers.start()
    before = workers.pids
    workers.submit("call", do=do, kind="fragile.call")
    workers.finish()
    assert workers.states() == {"call": ("in_doubt", "handler_error")}
    workers.submit("call", do=do, kind="fragile.call")
    workers.submit("next")
    workers.finish()
    assert workers.states() == dict.fromkeys(["call", "next"], ("done", "ok"))
    found = f"SELECT result FROM {workers.schema}.requests WHERE id = 'call'"
    assert [workers.query(found), workers.pids] == [[(pid,) for pid in before], before]
