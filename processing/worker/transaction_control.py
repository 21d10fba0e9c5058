"""What would end the transaction that requests share, or come behind its end, and is refused."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, NoReturn

import psycopg
from psycopg import pq

from processing.handlers.errors import OncepoolError
from processing.worker.sql_noise import without_noise

_ENDS = re.compile(
    r"(?:^|;)\s*(?:COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION"
    r"|ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b)"
    # The executor's own savepoint.
    r"|(?:(?:ROLLBACK\s+(?:WORK\s+|TRANSACTION\s+)?TO|RELEASE)\s+)?(?:SAVEPOINT\s+)?oncepool)\b",
    re.IGNORECASE,
)
_END_OF_BODY = re.compile(
    r"((?:^|;)\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\b"
    r"[^;]*?\bBEGIN\s+ATOMIC\b(?:.*?;)??\s*)END\b",
    re.IGNORECASE | re.DOTALL,
)
"""Of a function in SQL: it ends nothing else."""
_BY_HAND = re.compile(r"(?:^|;)\s*(?:SAVEPOINT|RELEASE|ROLLBACK)\b", re.IGNORECASE)
"""Statements about savepoints, of those that are let through."""
OURS: Final = "oncepool"
"""The executor's savepoint."""
_IDLE: Final = pq.TransactionStatus.IDLE


class TransactionControlRefused(OncepoolError):
    """A handler tried to end the transaction that requests share, or to go on behind its end."""


class ConnectionChangeRefused(OncepoolError):
    """A handler tried to change the connection, which it shares with other requests."""


class Control(NamedTuple):
    """What a statement, or one of several, does about transactions."""

    ends: bool
    """It would begin or end one."""
    by_hand: bool
    """It sets a savepoint, releases one or goes back to it."""


def control_of(statement: str, *, escapes: bool = False) -> Control:
    """What a statement does about transactions.

    `escapes`: where a backslash escapes a quote in every text.
    """
    bare = without_noise(statement, OURS, escapes=escapes)
    ends = _ENDS.search(bare) is not None
    if ends and "atomic" in bare.casefold():
        ends = _ENDS.search(_END_OF_BODY.sub(r"\1", bare)) is not None
    return Control(ends, _BY_HAND.search(bare) is not None)


def refuse(what: str) -> NoReturn:
    """Raises TransactionControlRefused."""
    raise TransactionControlRefused(
        f"{what!r} would end the transaction that this request shares with others and with its "
        "journal row; leave it out: Oncepool commits when the handler has returned"
    )


def refuse_way_round(what: str) -> NoReturn:
    """Raises TransactionControlRefused."""
    raise TransactionControlRefused(
        f"{what!r} leads round what keeps handlers from ending the transaction that this request "
        "shares with others; use tx, tx.connection.cursor() or psycopg.sql"
    )


def refuse_change(what: str, instead: str) -> NoReturn:
    """Raises ConnectionChangeRefused."""
    raise ConnectionChangeRefused(
        f"{what} would hold for other requests, which share the connection; {instead}"
    )


def refuse_behind_the_end(connection: psycopg.Connection[Any]) -> None:
    """Raises TransactionControlRefused where each statement would be committed by itself.

    In a pipeline that is known after its next synchronisation.
    """
    if connection.pgconn.transaction_status == _IDLE and connection.autocommit:
        raise TransactionControlRefused(
            "the transaction that this request shares with others has been ended while it ran: "
            "what it does now would be committed by itself, and again with each run"
        )
