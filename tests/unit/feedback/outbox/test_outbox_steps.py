from __future__ import annotations

import json
import subprocess
import sys
import types
from contextlib import closing
from typing import Any

import pytest
from django.db.utils import ConnectionHandler

from feedback.errors import RequestIdInUse, UnknownSender
from feedback.outbox.adding import add, add_many
from feedback.outbox.connections import run
from feedback.outbox.rows import OutboxRow, row_of
from feedback.outbox.steps import Rows, adding


def rows(*ids: str, payload: Any = None, sender: str = "default") -> list[OutboxRow]:
    return [row_of("t", payload, {"request_id": id_, "sender": sender}) for id_ in ids]


class Database:
    """Answers each statement with what is next for its first word, and notes it."""

    def __init__(self, **answers: list[Rows]) -> None:
        self.answers = answers
        self.seen: list[str] = []
        self.parameters: list[Any] = []

    def execute(self, sql: str, parameters: Any = None) -> None:
        self.seen.append(sql.split(maxsplit=1)[0])
        self.parameters.append((sql, parameters))

    def fetchall(self) -> Rows:
        return self.answers[self.seen[-1]].pop(0)


def test_all_are_added_by_one_statement() -> None:
    database = Database(SELECT=[[(None,)]])
    assert run(database, adding(rows("a", "b"), "s"), "s") == ["a", "b"]
    [(sql, [given])] = database.parameters
    assert '"s".add_requests(' in sql
    assert [(row["n"], row["id"]) for row in json.loads(given)] == [(0, "a"), (1, "b")]


def test_an_id_that_is_taken_is_named() -> None:
    with pytest.raises(RequestIdInUse, match="'b'"):
        run(Database(SELECT=[[("b",)]]), adding(rows("a", "b"), "s"), "s")


def test_one_id_twice_in_one_call() -> None:
    same = rows("a", "a")
    assert run(Database(SELECT=[[(None,)]]), adding(same, "s"), "s") == ["a", "a"]
    untouched = Database()
    with pytest.raises(RequestIdInUse):
        run(untouched, adding(rows("a") + rows("a", payload=1), "s"), "s")
    assert untouched.seen == []


def test_senders_are_asked_for_only_where_one_is_named() -> None:
    named = rows("a", sender="x")
    database = Database(SELECT=[[("default",), ("x",)], [(None,)]])
    assert run(database, adding(named, "s"), "s") == ["a"]
    database = Database(SELECT=[[("default",)]])
    with pytest.raises(UnknownSender):
        run(database, adding(named, "s"), "s")
    assert database.seen == ["SELECT"]


def test_nothing_to_add_asks_nothing() -> None:
    assert add_many(Database(), []) == []


def test_which_of_many_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="empty") as caught:
        add_many(Database(), [("t", {}), ("", {})])
    assert caught.value.__notes__ == ["this was request 1 of add_many()"]


@pytest.mark.parametrize("given", [None, "postgresql://x", object(), types.SimpleNamespace()])
def test_what_is_no_connection_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="no connection, session or cursor"):
        add(given, "t", {})


@pytest.mark.parametrize(
    "given", ["postgresql://u:hidden@h/db", b"postgresql://u:hidden@h/db", {"password": "hidden"}]
)
def test_a_url_that_is_handed_over_is_not_shown(given: Any) -> None:
    with pytest.raises(TypeError, match=f"^{type(given).__name__} is no connection") as caught:
        add(given, "t", {})
    assert "hidden" not in str(caught.value)


def test_a_connection_of_asyncpg_is_refused_and_what_to_hand_over_is_said() -> None:
    """It has execute() and cursor(), of another form."""

    async def execute(query: str, *arguments: Any) -> str:
        raise AssertionError

    fields = {"__module__": "asyncpg.connection", "execute": execute, "cursor": execute}
    bare = type("Connection", (), fields)()
    with pytest.raises(TypeError, match=r"asyncpg.*execute\(sql, parameters\) and fetchall\(\)"):
        add(bare, "t", {})


@pytest.mark.parametrize(
    "style,mark",
    [("qmark", "?"), ("numeric", ":1"), ("named", ":added"), ("format", "%s"), ("pyformat", "%s")],
)
def test_each_style_of_parameters_is_written(
    style: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = types.ModuleType("driver")
    vars(driver)["paramstyle"] = style
    monkeypatch.setitem(sys.modules, "driver", driver)
    database = Database(SELECT=[[(None,)]])
    connection = type("Driven", (), {"cursor": lambda _: database, "__module__": "driver.x"})()
    database.close = lambda: None  # type: ignore[attr-defined]
    assert run(connection, adding(rows("a"), "s"), "s") == ["a"]
    [(sql, parameters)] = database.parameters
    assert f"CAST(CAST({mark} AS text) AS json)" in sql
    assert ("%s" in sql) is (mark == "%s")
    assert isinstance(parameters, dict) is (style == "named")


def test_to_add_needs_no_driver_no_kafka_and_no_redis() -> None:
    code = (
        "import sys; from feedback import outbox; outbox.add; "
        "print({'psycopg', 'confluent_kafka', 'redis', 'sqlalchemy', 'django'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"


def test_a_connection_of_django_to_another_database_is_refused_in_words() -> None:
    connection = ConnectionHandler(
        {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    )["default"]
    with closing(connection), pytest.raises(TypeError, match=r"needs PostgreSQL, .* to sqlite"):
        add(connection, "order.place", {"article": "screw"})
