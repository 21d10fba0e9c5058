"""A request in doubt that is sent again: what its check finds out is the end of the run before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from processing import App, Done, NotDone, Request, Unknown
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.executor import Bench, bench_with_effects


@pytest.fixture
def asked() -> list[tuple[str, int]]:
    """Ids and attempts that the check was asked about."""
    return []


@pytest.fixture
def meanwhile() -> list[Callable[[], Any]]:
    """What happens while the check is asked."""
    return []


@pytest.fixture
def bench(
    stack: Stack, schema: str, asked: list[tuple[str, int]], meanwhile: list[Callable[[], Any]]
) -> Iterator[Bench]:
    app = App()

    def check(request: Request[Any]) -> Done | NotDone | Unknown:
        asked.append((request.id, request.attempt))
        if meanwhile:
            meanwhile.pop()()
        match request.id:
            case "done":
                return Done("paid")
            case "asks":
                request.follow_up("mail.send", {}, request_id="thanks")
                return Done("paid")
            case "nothing":
                return NotDone()
            case _:
                return Unknown()

    @app.handler("card.charge", effect="external", check=check)
    def charge(payload: Any) -> Any:
        raise OSError("cut off")

    @app.handler("mail.send", effect="external")
    def send(payload: Any) -> None:
        raise OSError("cut off")

    made = Bench(app, stack.database, schema, results=True, results_duplicates=True)
    yield made
    made.executor.close()
    app.stop_worker()


def counting(bench: Bench, name: str) -> tuple[Any, ...]:
    columns = "state, attempt, used, run, resends"
    [row] = bench.query(f"SELECT {columns} FROM {bench.schema}.requests WHERE id = %s", name)
    return row


def told(bench: Bench) -> list[tuple[str, int, str]]:
    ends = [s for s in bench.statuses if s["state"] != "running"]
    return [(s["state"], s["attempt"], s["v"][:5]) for s in ends]


def results(bench: Bench) -> list[tuple[Any, ...]]:
    return bench.query(f"SELECT state, code FROM {bench.schema}.results ORDER BY id")


def test_what_the_check_finds_done_is_the_attempt_that_was_in_doubt(
    bench: Bench, asked: list[tuple[str, int]]
) -> None:
    """No start is counted, and its copy is: it was answered without a run."""
    bench.run(bench.record("done", "card.charge", {}))
    again = bench.record("done", "card.charge", {})
    report = bench.run(again)
    assert counting(bench, "done") == ("done", 1, 1, 1, 1)
    assert asked == [("done", 1)]
    assert told(bench) == [("in_doubt", 1, "00001"), ("done", 1, "00001")]
    assert dict(report.counts) == {("card.charge", "done", "ok"): 1}
    bench.run(again)
    assert counting(bench, "done") == ("done", 1, 1, 1, 1), "each copy once"


def test_it_is_told_as_after_a_worker_that_was_killed(
    bench: Bench, asked: list[tuple[str, int]]
) -> None:
    call = bench.record("done", "card.charge", {})
    bench.run(call)
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'running', used = 0")
    bench.run(call, suspect=Suspect(None, (), (f"token-{bench.number}",), 1))
    assert counting(bench, "done") == ("done", 1, 1, 1, 0), "its own message is no copy"
    assert asked == [("done", 1)]


@pytest.mark.parametrize("died", [False, True])
def test_what_the_check_asks_for_is_written_with_the_end_that_it_finds_out(
    bench: Bench, *, died: bool
) -> None:
    """The call that was lost may have asked for it, too, and nobody knows that."""
    call = bench.record("asks", "card.charge", {})
    bench.run(call)
    if died:
        bench.query(f"UPDATE {bench.schema}.requests SET state = 'running', used = 0")
        bench.run(call, suspect=Suspect(None, (), (f"token-{bench.number}",), 1))
    else:
        bench.run(bench.record("asks", "card.charge", {}))
    assert bench.rows() == {"asks": ("done", "ok"), "thanks": ("waiting", "follow_up")}


def test_what_is_run_as_nothing_had_happened_is_the_next_attempt(
    bench: Bench, asked: list[tuple[str, int]]
) -> None:
    for _ in range(2):
        bench.run(bench.record("nothing", "card.charge", {}))
    assert counting(bench, "nothing") == ("in_doubt", 2, 2, 2, 0)
    assert asked == [("nothing", 1)]


def test_what_the_check_said_outlives_the_connection_that_was_lost_meanwhile(
    bench: Bench, asked: list[tuple[str, int]], meanwhile: list[Callable[[], Any]]
) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    meanwhile.append(bench.end_session)
    bench.run(bench.record("nothing", "card.charge", {}))
    assert asked == [("nothing", 1)]
    assert counting(bench, "nothing") == ("in_doubt", 2, 2, 2, 0)


def test_who_dies_while_the_check_is_asked_has_started_nothing(bench: Bench) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    again = bench.record("nothing", "card.charge", {})
    bench.run(again, suspect=Suspect(None, (), ("of the one that died",), 1))
    assert counting(bench, "nothing") == ("in_doubt", 2, 2, 2, 0)


def test_what_the_check_cannot_tell_is_counted_as_a_resend_and_no_other_end(
    bench: Bench, asked: list[tuple[str, int]]
) -> None:
    """As of a type without a check."""
    for kind in ("card.charge", "mail.send"):
        bench.statuses.clear()
        bench.run(bench.record(kind, kind, {}))
        report = bench.run(bench.record(kind, kind, {}))
        assert dict(report.counts) == {(kind, "in_doubt", "duplicate"): 1}
        assert counting(bench, kind) == ("in_doubt", 1, 1, 1, 1)
        assert told(bench) == [("in_doubt", 1, "00001")] * 2
    assert results(bench) == [("in_doubt", "handler_error"), ("in_doubt", "duplicate")] * 2
    assert asked == [("card.charge", 1)], "once for each copy"


def test_what_an_operator_settles_while_its_check_is_asked_runs_as_any_copy_does(
    bench: Bench, asked: list[tuple[str, int]], meanwhile: list[Callable[[], Any]]
) -> None:
    bench.run(bench.record("a", "card.charge", {}))
    resolved = "SET state = 'failed', code = 'resolved', run = 2, token = 'other'"
    meanwhile.append(lambda: bench.query(f"UPDATE {bench.schema}.requests {resolved}"))
    bench.run(bench.record("a", "card.charge", {}))
    assert counting(bench, "a") == ("in_doubt", 1, 1, 3, 0)
    assert asked == [("a", 1)]


def test_what_a_check_asked_for_that_denies_is_not_written_with_the_run_that_follows(
    stack: Stack, schema: str
) -> None:
    app = App()
    calls: list[Any] = []

    def deny(request: Request[Any]) -> NotDone:
        request.follow_up("mail.send", {}, request_id="thanks")
        return NotDone()

    @app.handler("card.charge", effect="external", check=deny)
    def charge(payload: Any) -> None:
        calls.append(payload)
        if len(calls) == 1:
            raise OSError("cut off")

    @app.handler("mail.send")
    def send(payload: Any) -> None: ...

    with bench_with_effects(app, stack.database, schema) as bench:
        bench.run(bench.record("a", "card.charge", 1))
        bench.run(bench.record("a", "card.charge", 1))
        assert (len(calls), bench.rows()) == (2, {"a": ("done", "ok")})
