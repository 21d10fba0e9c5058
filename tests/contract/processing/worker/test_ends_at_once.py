"""What is plain and ran without a transaction ends by one COPY: no BEGIN, and no COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal.migrations import migrate
from processing import App, Reject, Request
from processing.ipc.frames import Suspect
from processing.worker.database_clock import EVERY
from processing.worker.session import Session
from processing.worker.transaction import Transaction
from tests.support.executor import Bench, chunk_run
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy

SCHEMA = "oncepool"
COPY_DONE = b"c\0\0\0\4"
"""The message of the protocol that ends a COPY, and with it commits it."""

Act = Callable[[], object]


class Handlers:
    """What they do beside when they are entered first, and who was."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.act: dict[str, Act] = {}

    def enter(self, request: Request[Any]) -> None:
        self.entered.append(request.id)
        if act := self.act.pop(request.id, None):
            act()


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each BEGIN."""
    made, begin = list[str](), Session.begin

    def counted(session: Session) -> None:
        made.append("BEGIN")
        begin(session)

    monkeypatch.setattr(Session, "begin", counted)
    return made


@pytest.fixture
def wire(own_database: OwnDatabase) -> Iterator[Proxy]:
    with Proxy.of(own_database.url) as made:
        yield made


@pytest.fixture
def bench(
    own_database: OwnDatabase, wire: Proxy, handlers: Handlers, begun: list[str]
) -> Iterator[Bench]:
    migrate(own_database.url, SCHEMA)
    app = App()

    @app.handler("render")
    def render(payload: Any, request: Request[Any]) -> Any:
        handlers.enter(request)
        if payload == "no":
            raise Reject("no", "not this one")
        return payload

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        tx.execute("SELECT 1")

    made = Bench(app, wire.before(own_database.url), SCHEMA)
    made.url = own_database.url
    made.run(made.record("warm", "render", {}))
    assert (handlers.entered.pop(), begun) == ("warm", [])
    yield made
    made.executor.close()
    made.app.stop_worker()


def renderings(bench: Bench, *ids: str, payload: Any = None) -> list[Any]:
    return [bench.record(name, "render", payload or {"a": 1}) for name in ids]


def session_of(bench: Bench) -> Session:
    return bench.executor._session


def test_its_rows_and_statuses_are_those_of_a_transaction(
    bench: Bench, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(*ids: str) -> list[tuple[Any, ...]]:
        report = bench.run(*renderings(bench, *ids))
        assert (report.unclear, report.returned) == ([], [])
        rows = bench.query(
            "SELECT type, state, code, result::text, attempt, run, fingerprint, effect, error"
            f" FROM {SCHEMA}.requests WHERE id = ANY (%s) ORDER BY id", list(ids)
        )  # fmt: skip
        told = [one for one in bench.statuses if one["id"] in ids]
        return [*rows, *[(s["v"], s["state"], s["code"], s["result"]) for s in told]]

    alone = written("a", "b")
    assert begun == []
    monkeypatch.setattr(Transaction, "_end_at_once", lambda *_: False)
    assert written("c", "d") == alone
    assert begun == ["BEGIN"]


@pytest.mark.parametrize("why", ["rejected", "resent", "tx", "clock", "results"])
def test_what_more_is_to_be_written_or_asked_begins_a_transaction(
    bench: Bench, begun: list[str], why: str
) -> None:
    more = []
    if why == "rejected":
        more = renderings(bench, "b", payload="no")
    elif why == "resent":
        more = renderings(bench, "warm", payload={})
    elif why == "tx":
        more = [bench.record("b", "pay", {})]
    elif why == "clock":
        session_of(bench).clock._read_at -= EVERY + 1
    else:
        bench.executor.close()
        bench.executor = bench.another(bench.url, results=True)
    bench.run(*renderings(bench, "a"), *more)
    assert begun != []
    assert bench.state("a") == ("done", "ok")
    assert bench.rows()["a"] == ("done", "ok")
    begun.clear()
    if why == "clock":
        bench.run(*renderings(bench, "next"))
        assert begun == [], "it was read"


def test_an_answer_that_is_lost_is_unclear_and_then_looked_up(
    bench: Bench, wire: Proxy, handlers: Handlers
) -> None:
    records = renderings(bench, "a", "b")
    wire.lose_answer(COPY_DONE)
    report = bench.run(*records)
    assert (wire.lost, sorted(report.unclear)) == (1, [0, 1])
    assert bench.state("a") is None, "nobody knows, nobody is told"
    for record in records:
        bench.run(record, suspect=Suspect(None, (), ()))
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))
    assert handlers.entered == ["a", "b"]


def test_what_handlers_returned_survives_a_connection_that_ended_before_it_was_written(
    bench: Bench, begun: list[str], handlers: Handlers
) -> None:
    handlers.act["b"] = bench.end_session
    report = bench.run(*renderings(bench, "a", "b"))
    assert (report.unclear, report.returned, report.database_up) == ([], [], True)
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))
    assert handlers.entered == ["a", "b"]
    assert begun == ["BEGIN"], "which is tried until there is a connection"


def test_another_copy_that_was_quicker_is_its_answer(bench: Bench, handlers: Handlers) -> None:
    other = bench.another(bench.url)
    copy = renderings(bench, "a")
    handlers.act["a"] = lambda: other.begin(chunk_run(copy, 99, "another"))
    report = bench.run(*renderings(bench, "a", "b"))
    other.close()
    assert (report.unclear, report.returned) == ([], [])
    assert bench.rows() == dict.fromkeys(("warm", "a", "b"), ("done", "ok"))
    found = bench.query(f"SELECT resends FROM {SCHEMA}.requests WHERE id = 'a'")
    assert found == [(1,)]


def test_what_the_journal_refuses_fails_alone(bench: Bench) -> None:
    bench.query(f"ALTER TABLE {SCHEMA}.requests ADD CONSTRAINT no_c CHECK (id <> 'c')")
    report = bench.run(*renderings(bench, *"abcd"))
    assert (report.unclear, report.returned) == ([], [])
    states = {name: bench.state(name) for name in "abcd"}
    done = ("done", "ok")
    assert states == {"a": done, "b": done, "c": ("failed", "handler_error"), "d": done}
    assert {*bench.rows()} == {"warm", "a", "b", "d"}, "not even its failure can be written"


def test_a_trigger_that_lacks_a_right_is_no_sign_of_a_journal_of_no_use(bench: Bench) -> None:
    bench.query(f"""
        CREATE FUNCTION {SCHEMA}.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 'b' THEN PERFORM * FROM {SCHEMA}.not_there; END IF;
            RETURN NULL;
        END $$""")
    bench.query(f"""
        CREATE CONSTRAINT TRIGGER look AFTER INSERT ON {SCHEMA}.requests
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.look()""")
    report = bench.run(*renderings(bench, *"abc"))
    assert report.database_up
    assert (bench.state("a"), bench.state("c")) == (("done", "ok"), ("done", "ok"))
    assert bench.state("b") == ("failed", "handler_error")
