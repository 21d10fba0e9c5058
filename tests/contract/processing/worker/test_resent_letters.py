"""A conflict that an operator has sent again, and that conflicts again, is in the list again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from feedback.contract.record import Record
from feedback.journal.connections import open_connection
from feedback.operations.dead_letter_actions import drop_letters, resend_letter
from feedback.operations.dead_letters import list_dead
from feedback.operations.dead_message import DeadMessage
from feedback.operations.request_actions import By
from processing import App
from stack import Stack
from tests.support.executor import Bench

BY = By("ann", "")


@pytest.fixture
def bench(stack: Stack, schema: str) -> Iterator[Bench]:
    app = App()

    @app.handler("pay")
    def pay(payload: dict[str, Any]) -> None: ...

    made = Bench(app, stack.database, schema)
    made.run(made.record("a", "pay", {"n": 1}))
    yield made
    made.executor.close()


def conflict(bench: Bench) -> Record:
    return bench.record("a", "pay", {"n": 2})


def listed(bench: Bench) -> list[tuple[int, int]]:
    """Numbers and offsets of what an operator is shown."""
    with open_connection(bench.url, "test") as connection:
        rows = list_dead(connection, {}, 10, schema=bench.schema)
    return [(row["id"], row["kafka_offset"]) for row in rows]


@pytest.mark.parametrize("when", ["after the mark", "before the mark"])
def test_sent_again_it_is_listed_again(bench: Bench, when: str) -> None:
    """Also where a worker reads it before the operator's transaction has come to its end."""
    bench.run(conflict(bench), conflict(bench))
    ((number, offset),) = listed(bench)
    copies = [conflict(bench), conflict(bench)]

    def send(_: DeadMessage) -> None:
        if when == "before the mark":
            bench.run(*copies)

    with open_connection(bench.url, "test") as connection:
        assert resend_letter(connection, number, send, BY, schema=bench.schema) is None
    if when == "after the mark":
        assert listed(bench) == []
        bench.run(*copies)

    ((again, its_offset),) = listed(bench)
    assert again != number
    assert its_offset == offset + 2
    bench.run(*copies, conflict(bench))
    assert listed(bench) == [(again, its_offset)]
    assert bench.rows() == {"a": ("done", "ok")}


def test_one_that_is_dropped_and_comes_again_is_listed(bench: Bench) -> None:
    bench.run(conflict(bench))
    ((number, _),) = listed(bench)
    with open_connection(bench.url, "test") as connection:
        assert drop_letters(connection, [number], BY, schema=bench.schema) == []
    bench.run(conflict(bench))
    assert len(listed(bench)) == 1
