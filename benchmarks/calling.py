"""What it adds to a function that it is a handler: bound parameters, an encoded result, a guard.

    scripts/bench calling [--quick] [--rounds N] [--database]

Each form of a handler is called as a worker calls it, and the same function bare, in turns. Then
what guards `tx`, look by look (benchmarks/guarding.py): the check of a statement, whether the
transaction is over, the cursor that a type keeps beside one that is made anew. With --database also
`untouched`, which asks an open transaction; services are started for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg

from benchmarks.guarding import looks_of, session_of
from benchmarks.options import options_of, parser_of
from benchmarks.report import print_table
from benchmarks.services import services
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
    parser = parser_of(__doc__, "a fifth of the rounds", ROUNDS)
    parser.add_argument("--database", action="store_true", help="with an open transaction")
    options = options_of(parser)
    rounds = options.rounds or (ROUNDS // 5 if options.quick else ROUNDS)
    tell_forms(rounds)
    with services() if options.database else nullcontext() as stack:
        tell_looks(rounds, None if stack is None else stack.database)


def tell_forms(rounds: int) -> None:
    """Handlers and the same functions bare."""
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
    print_table("Microseconds of CPU a call, the lowest of all rounds", columns, rows)
    app.stop_worker()


def tell_looks(rounds: int, database: str | None) -> None:
    """What guards a handler's `tx`."""
    with session_of(database) as session:
        looks = looks_of(session)
        found: dict[str, list[float]] = {name: [] for name in looks}
        for _ in range(rounds):
            for name, look in looks.items():
                found[name].append(microseconds(look))
    print_table(
        "What guards `tx`: microseconds of CPU, the lowest of all rounds",
        ("look", "lowest", "median (lowest - highest)"),
        [(name, min(times), str(spread(times))) for name, times in found.items()],
        "" if database else "`untouched` needs --database",
    )


def microseconds(call: Callable[[], object]) -> float:
    """CPU of one of many calls."""
    begun = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - begun) / CALLS * 1e6


if __name__ == "__main__":
    main()
