"""``oncepool demo``: the example shop under load and kills, and a ledger that balances."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from consumer.commands.output import EXIT_FAILED, fail, print_json
from feedback.errors import OncepoolError
from stack.errors import StackError

app = typer.Typer()

PART = "examples.demo.main"
WIDTH = 120
"""Columns of the ledger where there is no terminal."""
FEWEST = 1000
"""Requests: of fewer nothing may be left that a kill interrupts, or that becomes a dead letter."""

FOREVER = 10 * 365 * 86400.0

RequestsOption = Annotated[
    int | None,
    typer.Option(
        "--requests",
        min=FEWEST,
        envvar="ONCEPOOL_DEMO_REQUESTS",
        help="How many, instead of 20,000, or of 2,400 with --quick.",
    ),
]
NoOutboxOption = Annotated[
    bool,
    typer.Option(
        "--no-outbox",
        envvar="ONCEPOOL_DEMO_NO_OUTBOX",
        help="Only the counter-example: orders whose payment is asked for without an outbox.",
    ),
]

ServeOption = Annotated[
    bool,
    typer.Option(
        "--serve",
        envvar="ONCEPOOL_DEMO_SERVE",
        help="Afterwards leave consumers, a relay and the gateway with its pages running.",
    ),
]
ServeSecondsOption = Annotated[
    float,
    typer.Option(
        "--serve-seconds",
        min=1,
        envvar="ONCEPOOL_DEMO_SERVE_SECONDS",
        show_default="until Ctrl-C",
        help="With --serve: end by itself after so many seconds.",
    ),
]


@app.command()
def demo(
    *,
    quick: Annotated[
        bool,
        typer.Option("--quick", envvar="ONCEPOOL_DEMO_QUICK", help="About half a minute."),
    ] = False,
    requests: RequestsOption = None,
    no_outbox: NoOutboxOption = False,
    serve: ServeOption = False,
    serve_seconds: ServeSecondsOption = FOREVER,
    json: Annotated[
        bool,
        typer.Option("--json", envvar="ONCEPOOL_JSON", help="Print the ledger as one JSON object."),
    ] = False,
) -> None:
    """Play the whole story on services of this machine, and verify that every request ran once.

    Three consumers, a producer with duplicates, conflicts and malformed messages, a worker and a
    consumer killed and another one told to stop at once, requests that are delayed, retried,
    coalesced or dead; beside it a web shop whose orders are charged through its outbox, with shop
    and relay killed. Exit code 1 when a ledger does not balance, as it won't with --no-outbox.
    """
    from rich.console import Console

    try:
        part = importlib.import_module(PART)
    except ModuleNotFoundError as error:
        fail(_missing(error))
    try:
        console = Console(stderr=json, highlight=False)
        if not console.is_terminal:
            console.width = WIDTH
        balanced, ledger = part.play(
            quick=quick,
            outbox=not no_outbox,
            requests=requests,
            served=serve_seconds if serve else 0.0,
            console=console,
        )
    except (OncepoolError, StackError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; nothing is left running")
    if json:
        print_json(ledger)
    if not balanced:
        raise typer.Exit(EXIT_FAILED)


def _missing(error: ModuleNotFoundError) -> str:
    if (error.name or "").partition(".")[0] == "examples":
        return (
            "the demo is part of the repository, not of the package: clone the repository and run "
            "scripts/demo there"
        )
    return f"the demo needs a package that is missing ({error.name}): run scripts/setup"
