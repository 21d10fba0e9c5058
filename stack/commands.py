"""`oncepool stack up|down|status`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stack.errors import StackError
from stack.external import OWN, VARIABLES, mark

if TYPE_CHECKING:
    from stack.local import Stack
    from stack.plan import Role
    from stack.start import Watch

stack_app = typer.Typer(
    no_args_is_help=True,
    help="Kafka, PostgreSQL and Valkey on this machine, for the demo, tests and development.",
)

Data = Annotated[
    Path | None,
    typer.Option(
        envvar="ONCEPOOL_STACK_DATA",
        file_okay=False,
        help="Folder of the services' data; each has a stack of its own.",
    ),
]
Json = Annotated[bool, typer.Option("--json", envvar="ONCEPOOL_JSON", help="Print JSON.")]


@stack_app.command()
def up(
    data: Data = None,
    brokers: Annotated[
        int | None,
        typer.Option(envvar="ONCEPOOL_STACK_BROKERS", help="Kafka brokers, 1 (default) or 3."),
    ] = None,
    broker_property: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ONCEPOOL_STACK_BROKER_PROPERTIES",
            metavar="NAME=VALUE",
            help="A broker property; may be given many times. The variable holds any number of"
            " them, with spaces between.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Start what does not run yet, and return when all of it serves. It stays until `down`."""
    from stack.start import up as bring_up

    with _explained(), _progress() as watch:
        properties = None if broker_property is None else _properties(broker_property)
        stack = bring_up(data, brokers, broker_properties=properties, watch=watch)
    if json_:
        typer.echo(json.dumps(_addresses(stack)))
        return
    # Ready for eval "$(oncepool stack up)".
    addresses = _addresses(stack)
    for role, variable in VARIABLES.items():
        typer.echo(f"export {variable}={shlex.quote(addresses[role])}")
    own = [address for role, address in addresses.items() if role not in stack.external]
    typer.echo(f"export {OWN}={shlex.quote(mark(stack.data, own))}")


@stack_app.command()
def down(
    data: Data = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the data, too.")] = False,
    json_: Json = False,
) -> None:
    """End all services of the stack. The next `up` finds its data, unless `--delete` removed it."""
    from stack.local import find

    with _explained():
        stack = find(data, stopped=delete)
        if stack is not None:
            stack.down(delete=delete)
    if json_:
        typer.echo(json.dumps({"ended": stack is not None}))
    else:
        typer.echo("nothing was running" if stack is None else "down", err=True)


@stack_app.command()
def status(data: Data = None, json_: Json = False) -> None:
    """Show the services of the stack and whether they run."""
    from stack.local import find

    with _explained():
        stack = find(data, stopped=True)
        services = [] if stack is None else stack.status()
    if json_:
        found: dict[str, object] = {
            "running": stack is not None and stack.running,
            "data": None if stack is None else str(stack.data),
            "services": [
                {"name": s.name, "role": s.role, "state": s.state, "address": s.address}
                for s in services
            ],
        }
        addresses = {} if stack is None else _addresses(stack)
        typer.echo(json.dumps(found | addresses))
        return
    if stack is None:
        typer.echo("no stack here; `oncepool stack up` starts one", err=True)
        return
    for service in services:
        typer.echo(f"{service.name:<10} {service.state:<8} {service.address}")
    typer.echo(f"data in {stack.data}", err=True)


def _addresses(stack: Stack) -> dict[Role, str]:
    return {"kafka": stack.kafka, "database": stack.database, "redis": stack.redis}


def _properties(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise StackError(f"--broker-property takes NAME=VALUE, not {pair!r}")
        found[name.strip()] = value.strip()
    return found


@contextmanager
def _explained() -> Iterator[None]:
    """Turns an error of the stack into a message and exit code 1."""
    try:
        yield
    except (StackError, OSError) as error:
        typer.echo(f"oncepool: {error}", err=True)
        raise typer.Exit(1) from error


@contextmanager
def _progress() -> Iterator[Watch]:
    """Shows on standard error what each service is doing: a live table, or lines in a log."""
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        yield lambda progress: typer.echo(": ".join(progress), err=True)
        return
    name, doing = TextColumn("{task.fields[service]}"), TextColumn("{task.description}")
    display = Display(SpinnerColumn(finished_text="✓"), name, doing, TimeElapsedColumn(),
                      console=console)  # fmt: skip
    with display:
        tasks = {}

        def watch(progress: tuple[str, str]) -> None:
            service, what = progress
            if service not in tasks:
                tasks[service] = display.add_task("", total=1, service=f"{service:<9}")
            done = what == "ready"
            display.update(tasks[service], description=what, completed=1 if done else 0)

        yield watch
