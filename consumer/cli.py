"""The command line: which command is which module.

A command's module is imported when that command is called, so that `oncepool run`, whose process
lives long, holds only what it uses.

Its exit codes are a promise, and stand in docs/cli.md.
"""

from __future__ import annotations

import errno
import gc
import importlib
import logging
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from consumer.commands.output import EXIT_USAGE, fail
from consumer.errors import WrongArgument
from feedback.errors import OncepoolError
from processing.ipc.standard_streams import open_missing

COMMANDS = {
    "run": "consumer.commands.run:app",
    "new": "consumer.commands.new:app",
    "check": "consumer.commands.check:app",
    "asyncapi": "consumer.commands.asyncapi:app",
    "migrate": "consumer.commands.migrate:app",
    "topics": "consumer.commands.topics:app",
    "send": "consumer.commands.send:app",
    "status": "consumer.commands.status:app",
    "requests": "consumer.commands.requests:app",
    "dead-letters": "consumer.commands.dead_letters:app",
    "prune": "consumer.commands.prune:app",
    "stats": "consumer.commands.stats:app",
    "limits": "consumer.commands.limits:app",
    "schedules": "consumer.commands.schedules:app",
    "outbox": "consumer.commands.outbox:app",
    "relay": "consumer.commands.relay:app",
    "gateway": "consumer.commands.gateway:app",
    "stack": "stack.commands:stack_app",
    "demo": "consumer.commands.demo:app",
}
"""Command -> module and its Typer application, in the order of the help."""


COMPLETION = ("install_completion", "show_completion")


class Commands(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of COMMANDS."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        """The command of that name, or None."""
        del ctx
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, attribute = place.split(":")
        application = getattr(importlib.import_module(module), attribute)
        if not gc.isenabled():  # the program, whose imports are done now
            gc.freeze()
            gc.enable()
        command: TyperCommand | TyperGroup = typer.main.get_command(application)  # type: ignore[assignment]
        command.name = cmd_name
        # Shell completion is the program's, not each command's.
        command.params = [p for p in command.params if p.name not in COMPLETION]
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, of commands too; those that no text can stand for are named."""
        for what in _unreadable(args):
            fail(f"{what} is not UTF-8: give it as text", EXIT_USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; an error of ours becomes a message and exit code 1 (2: wrong usage)."""
        try:
            return super().invoke(ctx)
        except WrongArgument as error:
            fail(str(error), EXIT_USAGE)
        except typer.BadParameter as error:
            if (source := _variable(error)) is None:
                raise
            fail(f"environment variable {source}: {error.message}; correct or unset it")
        except OncepoolError as error:
            fail(str(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read has enough
            fail(": ".join(filter(None, (error.filename, error.strerror or str(error)))))


def _variable(error: typer.BadParameter) -> str | None:
    """The variable, and its value, that an option or argument has a wrong value from."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None:
        return None
    source = context.get_parameter_source(option.name)
    if source is None or source.name != "ENVIRONMENT" or not isinstance(option.envvar, str):
        return None
    return f"{option.envvar} = {os.environ.get(option.envvar)!r}"


def _unreadable(args: Sequence[str]) -> Iterator[str]:
    """What was given in bytes that are no text, be it an argument or a variable of ours."""
    for argument in args:
        if not _is_text(argument):
            yield f"argument {argument!a}"
    for name, value in os.environ.items():
        if name.startswith("ONCEPOOL_") and not _is_text(name + value):
            yield f"environment variable {name!a}"


def _is_text(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Runs requests that must not run twice from Kafka, on a bounded pool of processes.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"oncepool {version('oncepool')}")
        raise typer.Exit


@app.callback()
def oncepool(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Runs requests that must not run twice from Kafka, on a bounded pool of processes."""


def main() -> None:
    """The program, once this is imported."""
    open_missing()
    # Libraries' chatter is of no use to who waits for a command; `run` sets up logging of its own.
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    app(prog_name="oncepool")
