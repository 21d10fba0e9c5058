"""Fatal errors that come while the service drains already."""

from __future__ import annotations

import pytest

from consumer.intake.events import Answered
from consumer.service.service import EXIT_FATAL
from tests.support.scripted_service import A, ScriptedService, term


def test_an_open_commit_that_fails_for_good_during_the_drain_is_a_fatal_error(
    bench: ScriptedService, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.kafka.silent = True
    error = "GROUP_AUTHORIZATION_FAILED"

    def answer() -> None:
        token = bench.kafka.commits[0][1]
        bench.kafka.events.append(Answered(token, error, {A: error}))
        bench.kafka.silent = False

    bench.script = {5: lambda: bench.arrive(0), 12: term, 30: answer}
    assert bench.run(grace=30) == EXIT_FATAL
    assert "not allowed to use the group" in capfd.readouterr().err
    assert bench.kafka.calls[-1] == "close"
    assert bench.pool.submitted == []


def test_a_fatal_error_of_the_pool_during_the_drain_is_one(
    bench: ScriptedService, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.pool.per_step = 0
    bench.script = {
        5: lambda: bench.arrive(0),
        20: term,
        25: lambda: setattr(bench.pool, "fatal", "no maintenance process starts"),
        30: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(read_again=False, grace=30) == EXIT_FATAL
    assert "no maintenance process starts" in capfd.readouterr().err
