"""A command's connection to the journal."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors

from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from feedback.errors import SchemaTooNew
from feedback.journal.connections import open_connection
from feedback.journal.database_errors import is_away, is_cut, is_lock_race, is_turned_away
from feedback.journal.migrations import KnownJournal
from processing.logs import get_logger


class JournalUnreachable(ConsumerError):
    """PostgreSQL did not answer, or refused."""


class JournalBusy(JournalUnreachable):
    """PostgreSQL was not asked: others kept all connections that there are for it."""


class JournalFull(JournalUnreachable):
    """PostgreSQL has undone a statement for lack of disk space or memory."""


class JournalRefused(ConsumerError):
    """PostgreSQL refused a statement."""


class JournalReadOnly(JournalRefused):
    """PostgreSQL takes no writes: a standby, or one that was set so."""


class JournalContended(JournalRefused):
    """PostgreSQL ended a statement that may go well the next time: others were in its way."""


NOTHING_DONE: Final = (JournalBusy, JournalFull, JournalRefused)
"""Errors after which nothing stands of the transaction that was to do something."""

LOCK_TIMEOUT: Final = 5.0
"""Seconds for which a command waits for a lock: whoever has it may be a terminal left open."""

_ADVICE: Final[tuple[tuple[type[psycopg.Error], str], ...]] = (
    (errors.LockNotAvailable, "end transactions that stay open, then try again"),
    (
        errors.QueryCanceled,
        "try again, and raise the statement_timeout of its role or database if there is one",
    ),
    (errors.DeadlockDetected, "try again"),
    (errors.SerializationFailure, "try again"),
    (errors.InsufficientPrivilege, "look at the rights of its user"),
    (
        errors.ReadOnlySqlTransaction,
        "name the primary in {setting}, or turn off its default_transaction_read_only",
    ),
)
"""What to do, with a place for the setting that names the database."""

log = get_logger("oncepool.journal")


@contextmanager
def explained(
    setting: str = "database_url", *, connected: bool = False, within: float | None = None
) -> Iterator[None]:
    """Turns errors of PostgreSQL into ConsumerErrors that say what to do.

    `setting` is the one that names the database; `connected`: there is a connection already;
    `within` a bound of our own for each statement.
    """
    try:
        yield
    except errors.QueryCanceled as error:
        if within is None:
            raise _in_words(error, setting, connected=connected) from None
        raise JournalContended(
            f"the database answers, and took longer than {within:g} s for this: try again later"
        ) from None
    except psycopg.Error as error:
        raise _in_words(error, setting, connected=connected) from None


def _in_words(error: psycopg.Error, setting: str, *, connected: bool) -> ConsumerError:
    said, advice = said_by(error), advice_of(error, setting)
    if isinstance(error, errors.LockNotAvailable):
        return JournalContended(f"others use the tables without a pause: {said}; {advice}")
    if isinstance(error, errors.QueryCanceled) or is_lock_race(error):
        return JournalContended(f"the database ended the statement, undone: {said}; {advice}")
    if connected and is_cut(error):
        return JournalUnreachable(
            "the connection ended before the database had answered; if this was to change"
            f" something, nobody knows whether it did: look again: {said}"
        )
    if is_cut(error) or is_away(error):
        what = "is out of what it needs" if _is_short(error) else "does not answer"
        what = "refused the connection" if is_turned_away(error) else what
        # What it says on a connection that stands, it says of a statement that it has undone.
        full = connected and _is_short(error)
        raised = JournalFull if full else JournalUnreachable
        return raised(f"the database {what}; {advice}: {said}")
    if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError):
        return JournalRefused(f"{setting} can't be used, correct it: {said}")
    read_only = isinstance(error, errors.ReadOnlySqlTransaction)
    refused = JournalReadOnly if read_only else JournalRefused
    return refused(f"the database refused: {said}" + (f"; {advice}" if advice else ""))


def advice_of(error: psycopg.Error, setting: str) -> str:
    """What to do about it; empty where nobody knows. `setting` names the database."""
    known = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
    if not known and is_turned_away(error):
        known = "correct {setting}, or what it names"
    if not known and _is_short(error):
        known = "give it more of what it names"
    if not known and (is_cut(error) or is_away(error)):
        known = "correct {setting} or start PostgreSQL"
    return known.format(setting=setting)


def _is_short(error: psycopg.Error) -> bool:
    """Whether it answers, and lacks disk space, memory or connections."""
    return error.sqlstate is not None and error.sqlstate.startswith("53")


def said_by(error: psycopg.Error) -> str:
    """What PostgreSQL said, its details too, in one line."""
    return mask_url("; ".join(line.strip() for line in str(error).strip().splitlines()))


def checked(connection: psycopg.Connection[Any], settings: Settings) -> psycopg.Connection[Any]:
    """The same, of the journal of these settings; closed where it raises JournalError.

    A newer one than of this version is taken where this process has found it to be of this version
    before, by whatever connection.
    """
    try:
        _known(settings.database_url, settings.database_schema).check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@functools.cache
def _known(url: str, schema: str) -> KnownJournal:
    del url  # it tells it from others
    return KnownJournal(schema, _upgraded)


def _upgraded(error: SchemaTooNew) -> None:
    log.warning(
        "a newer version has upgraded the journal: it is used until this process is replaced",
        detail=str(error),
    )


def bounds(lock: float, within: float | None) -> dict[str, float]:
    """Settings of a session whose statements wait so long for a lock, and end `within` a time.

    Where a lock is waited for that is heard first, as there is something to be done about it.
    """
    if within is None:
        return {"lock_timeout": lock}
    return {"lock_timeout": min(lock, 0.8 * within), "statement_timeout": within}


@contextmanager
def connect(
    settings: Settings, *, within: float | None = None
) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a journal as `checked` has it, each statement `within` seconds where given.

    Raises ConsumerError where PostgreSQL is not there, JournalError where the journal isn't.
    """
    settings.require("database_url")
    with explained():
        opened = open_connection(
            settings.database_url, "oncepool command", timeouts=bounds(LOCK_TIMEOUT, within)
        )
    with explained(connected=True, within=within), opened as connection:
        yield checked(connection, settings)
