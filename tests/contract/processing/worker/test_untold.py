"""Types whose success nobody asks about."""

from __future__ import annotations

import contextlib
from typing import Any

from processing import App, Request
from stack import Stack
from tests.support.executor import Bench


def made_app() -> App:
    app = App()

    def pure(payload: Any) -> None:
        if payload == "raise":
            raise ValueError("no")

    app.handler("told", effect="none")(pure)
    app.handler("untold", effect="none", done_status=False)(pure)
    app.handler("untold, again", effect="none", done_status=False, retries=1)(pure)

    @app.batch_handler("untold batch", effect="none", done_status=False)
    def batch(requests: list[Request[Any]]) -> list[Any]:
        return [None for _ in requests]

    return app


def test_their_success_is_not_told_and_every_other_end_is(stack: Stack, schema: str) -> None:
    bench = Bench(made_app(), stack.database, schema)
    with contextlib.closing(bench.executor):
        bench.run(
            bench.record("a", "untold", 5),
            bench.record("b", "untold", "raise"),
            bench.record("c", "untold, again", 5),
            bench.record("d", "untold, again", "raise"),
            bench.record("e", "untold batch", 5),
            bench.record("f", "told", 5),
        )
        assert list(bench.rows()) == ["d"]
        told = sorted((status["id"], status["state"]) for status in bench.statuses)
    assert told == [("b", "failed"), ("d", "waiting"), ("f", "done")]
