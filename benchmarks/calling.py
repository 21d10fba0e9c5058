"""What it adds to a function that it is a handler: its parameters bound, its result encoded.

    scripts/bench calling [--quick]

Each form of a handler is called as a worker calls it, and the same function bare, in turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.report import print_table
from benchmarks.spread import spread
from processing import App, Request

CALLS = 20_000
ROUNDS = 15
PAYLOAD = {"a": 1}


def nothing(payload: dict[str, Any]) -> None:
    """Takes its payload."""


def with_cursor(payload: dict[str, Any], tx: psycopg.Cursor[Any]) -> None:
    """Takes the transaction's cursor, too."""


def with_all(payload: dict[str, Any], tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
    """Takes all that there is."""


def with_result(payload: dict[str, Any]) -> dict[str, int]:
    """Returns a result."""
    return {"n": len(payload)}


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "payload": (nothing, (PAYLOAD,)),
    "payload, tx": (with_cursor, (PAYLOAD, None)),
    "payload, tx, request": (with_all, (PAYLOAD, None, None)),
    "payload, with a result": (with_result, (PAYLOAD,)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    rounds = ROUNDS // 5 if parser.parse_args().quick else ROUNDS
    app = App()
    for form, (function, _) in FORMS.items():
        app.handler(form, effect="none" if "tx" not in form else "transaction")(function)
    app.start_worker({})
    rows = []
    for form, (function, arguments) in FORMS.items():
        call = app.handlers[form].call
        bare, bound = [], []
        for _ in range(rounds):
            bare.append(microseconds(lambda: function(*arguments)))  # noqa: B023 - called here
            bound.append(microseconds(lambda: call(PAYLOAD, None, None)))  # noqa: B023
        least = [min(bare), min(bound)]
        rows.append([form, *least, least[1] - least[0], str(spread(bound))])
    columns = ["a handler that takes", "bare", "as a handler", "more", "median (lowest - highest)"]
    print_table("Microseconds a call, the lowest of all rounds", columns, rows)
    app.stop_worker()


def microseconds(call: Callable[[], object]) -> float:
    """What one of many calls takes."""
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begun) / CALLS * 1e6


if __name__ == "__main__":
    main()
