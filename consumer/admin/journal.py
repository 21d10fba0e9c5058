"""A command's connection to the journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from feedback.journal.connections import open_connection
from feedback.journal.database_errors import is_away, is_cut, is_lock_race
from feedback.journal.migrations import check_schema


class JournalUnreachable(ConsumerError):
    """PostgreSQL did not answer, or refused."""


class JournalBusy(JournalUnreachable):
    """PostgreSQL was not asked: others kept all connections that there are for it."""


class JournalRefused(ConsumerError):
    """PostgreSQL refused a statement."""


class JournalContended(JournalRefused):
    """PostgreSQL ended a statement that may go well the next time: others were in its way."""


@contextmanager
def explained(setting: str = "database_url", *, connected: bool = False) -> Iterator[None]:
    """Turns errors of PostgreSQL into ConsumerErrors that say what to do.

    `setting` is the one that names the database; `connected`: there is a connection already.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _in_words(error, setting, connected=connected) from None


def _in_words(error: psycopg.Error, setting: str, *, connected: bool) -> ConsumerError:
    said = _said(error)
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return JournalContended(
            f"others use the tables without a pause: {said}; end transactions that stay open, then"
            " try again"
        )
    if isinstance(error, psycopg.errors.QueryCanceled) or is_lock_race(error):
        return JournalContended(f"the database ended the statement, undone: {said}; try again")
    if connected and is_cut(error):
        return JournalUnreachable(
            "the connection ended before the database had answered; if this was to change"
            f" something, nobody knows whether it did: look again: {said}"
        )
    if is_cut(error) or is_away(error):
        what = f"the database does not answer; correct {setting} or start PostgreSQL"
        if is_cut(error) and "FATAL:" in said:  # a server is there, and lets nobody in
            what = f"the database refused the connection; correct {setting}, or what it names"
        return JournalUnreachable(f"{what}: {said}")
    if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError):
        return JournalRefused(f"{setting} can't be used, correct it: {said}")
    return JournalRefused(f"the database refused: {said}{_advice(error)}")


def _advice(error: psycopg.Error) -> str:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "; look at the rights of its user"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return "; it takes no writes, as a standby: name the primary"
    return ""


def _said(error: psycopg.Error) -> str:
    """What PostgreSQL said, its details too, in one line."""
    return mask_url("; ".join(line.strip() for line in str(error).strip().splitlines()))


def checked(connection: psycopg.Connection[Any], schema: str) -> psycopg.Connection[Any]:
    """The same, of a journal of this version; closed where it raises JournalError."""
    try:
        check_schema(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def connect(
    settings: Settings, *, within: float | None = None
) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a journal of this version, each statement `within` seconds where given.

    Raises ConsumerError where PostgreSQL is not there, JournalError where the journal isn't.
    """
    timeouts = {} if within is None else {"statement_timeout": within}
    settings.require("database_url")
    with explained():
        opened = open_connection(settings.database_url, "oncepool command", timeouts=timeouts)
    with explained(connected=True), opened as connection:
        check_schema(connection, settings.database_schema)
        yield connection
