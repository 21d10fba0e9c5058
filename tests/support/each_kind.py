"""An app with one handler of each kind, all of which do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from processing import App, Request


def each_kind(run: Callable[[Request[Any]], None]) -> App:
    """`one`, `piped`, `plain`, `pure`, `charge`, and the batches `many` and `more`."""
    app = App()

    @app.handler("one")
    def one(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        run(request)

    @app.handler("piped", pipeline=True)
    def piped(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        run(request)

    @app.handler("plain")
    def plain(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.handler("pure", effect="none")
    def pure(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request[Any]) -> None:
        run(request)

    @app.batch_handler("many")
    def many(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[None]:
        for request in requests:
            run(request)
        return [None] * len(requests)

    @app.batch_handler("more", effect="none")
    def more(requests: list[Request[Any]]) -> list[None]:
        for request in requests:
            run(request)
        return [None] * len(requests)

    return app
