"""``oncepool dead-letters export`` and ``import``: JSON Lines."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from consumer.admin.journal import JournalContended, JournalUnreachable, connect
from consumer.commands.dead_letter_options import (
    KindOption,
    ReasonOption,
    SearchOption,
    SinceOption,
    TypeOption,
    filters,
)
from consumer.commands.operator import YesOption, batches, complain, confirm
from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.commands.output import EXIT_FAILED, counted, fail, print_json, say
from consumer.config.replacing import SHARED, replacing
from consumer.config.settings import Settings
from feedback.journal.connections import Connection, database_now
from feedback.operations.dead_letter_files import export_lines, export_parts, identity, import_lines
from feedback.operations.dead_letters import DeadLetterRef, select_dead

PAUSE = 1.0
"""Seconds between two looks of --follow."""
OVERLAP = timedelta(minutes=15)
"""How long after its time, by the database's clock, an entry may still appear: its transaction has
to end first, and the clock of its worker may be behind."""
STDIO = "-"
STDOUT = frozenset({STDIO, "/dev/stdout"})


@with_settings(*DATABASE)
def export(
    settings: Settings,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            envvar="ONCEPOOL_LETTERS_FOLLOW",
            help=(
                "Append to FILE what it does not have yet, then what comes, until interrupted;"
                " older entries that are imported meanwhile only when started again."
            ),
        ),
    ] = False,
    kind: KindOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    search: SearchOption = None,
    yes: YesOption = False,
) -> None:
    """Write dead letters to a file, one JSON object a line; they stay in the journal too."""
    chosen = filters(kind, type_, reason, since, search)
    if follow:
        _follow(settings, file, chosen)
        return
    if file not in STDOUT and Path(file).is_file():
        confirm(f"{file} is there already. Overwrite it?", yes=yes)
    with connect(settings) as connection, _replacing(file) as out:
        schema = settings.database_schema
        places = select_dead(connection, chosen, schema=schema)
        count = 0
        for part in batches(places, "export"):
            for line in export_lines(connection, part, schema=schema):
                out.write(line)
                count += 1
    typer.echo(f"{count} dead letters exported", err=True)


@with_settings(*DATABASE)
def import_(
    settings: Settings,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    json: JsonOption = False,
) -> None:
    """Bring an export back. What the journal has already stays as it is.

    A line that can't be read is named with its number, and the others are imported: exit code 1.
    """
    added = there = 0
    broken: list[dict[str, Any]] = []
    with connect(settings) as connection, _reading(file) as lines:
        for part in import_lines(connection, lines, schema=settings.database_schema):
            added += part.added
            there += part.there
            broken += [one._asdict() for one in part.broken]
    if json:
        print_json({"imported": added, "there": there, "broken": broken})
    else:
        lines_broken = counted(len(broken), "broken line")
        typer.echo(f"{added} imported, {there} were there already, {lines_broken}")
    complain([f"line {one['number']} of {file}: {one['reason']}" for one in broken])
    if broken:
        raise typer.Exit(EXIT_FAILED)


class Follower:
    """Appends dead letters to a file as they come."""

    def __init__(
        self, out: BinaryIO, seen: set[DeadLetterRef], chosen: dict[str, Any], schema: str
    ) -> None:
        self._out = out
        self._seen = seen
        self._chosen = chosen
        self._low: datetime | None = chosen["since"]
        self._schema = schema

    def look(self, connection: Connection) -> None:
        """Appends what came since the last look; where it breaks off the next one goes on."""
        started = database_now(connection)
        found = select_dead(connection, {**self._chosen, "since": self._low}, schema=self._schema)
        new = [place for place in found if place not in self._seen]
        for part, lines in export_parts(connection, new, schema=self._schema):
            self._out.writelines(lines)
            self._out.flush()
            self._seen.update(part)
        low = started - OVERLAP
        self._low = low if self._low is None else max(self._low, low)
        self._seen = {p for p in self._seen if p.at is None or p.at >= self._low}


def _follow(settings: Settings, file: str, chosen: dict[str, Any]) -> None:
    """Until interrupted; goes on when the database comes back."""
    said = False
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what is written is ended
        out, seen = (
            (typer.get_binary_stream("stdout"), set[DeadLetterRef]())
            if file in STDOUT
            else _continued(stack, file)
        )
        follower = Follower(out, seen, chosen, settings.database_schema)
        while True:
            try:
                with connect(settings) as connection:
                    while True:
                        follower.look(connection)
                        said = False
                        time.sleep(PAUSE)
            except (JournalUnreachable, JournalContended) as error:
                if not said:
                    say(f"{error}; waiting for it")
                said = True
                time.sleep(PAUSE)


def _continued(stack: ExitStack, file: str) -> tuple[BinaryIO, set[DeadLetterRef]]:
    """The file, to append to, and what it has. A line that a crash cut off is removed.

    What is no regular file has nothing to go on from.
    """
    path = Path(file)
    plain = path.is_file() or not path.exists()
    try:
        out = stack.enter_context(path.open("ab+" if plain else "wb"))
        return out, _read_back(out, file) if plain else set()
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror}")


def _read_back(out: BinaryIO, file: str) -> set[DeadLetterRef]:
    """What an export has. Its last line is completed or removed where it has no end."""
    out.seek(0)
    whole, seen, last, strange = 0, set[DeadLetterRef](), b"", False
    for line in out:
        place = identity(line)
        if place is not None:
            seen.add(place)
        if line.endswith(b"\n"):
            whole += len(line)
            strange |= place is None
        else:
            last = line
    if last and identity(last) is not None:
        out.write(b"\n")
    elif last:
        if strange or not last.startswith(b"{"):
            fail(f"{file} is no export, and its last line has no end: give another name")
        out.truncate(whole)
    return seen


@contextmanager
def _replacing(file: str) -> Iterator[BinaryIO]:
    """Takes the place of a file at the end; what is no regular file is written as it is."""
    if file in STDOUT:
        yield typer.get_binary_stream("stdout")
        return
    path = Path(file)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                yield out
        else:
            with replacing(path, SHARED) as out:
                yield out
    except OSError as error:
        fail(f"{file} can't be written: {error.strerror}")


@contextmanager
def _reading(file: str) -> Iterator[BinaryIO]:
    if file == STDIO:
        yield typer.get_binary_stream("stdin")
        return
    try:
        with Path(file).open("rb") as lines:
            yield lines
    except OSError as error:
        fail(f"{file} can't be read: {error.strerror}")
