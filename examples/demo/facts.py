"""Reads what the ledger is made of: the journal, the shop's tables, the card service's record."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import psycopg

from examples.demo.book import FailedAttempt, JournalRow, LetterRow
from examples.shop.card_service import read_ledger
from examples.shop.storefront import PREFIX


class Facts(NamedTuple):
    """What the database and the card service know."""

    rows: list[JournalRow]
    attempts: list[FailedAttempt]
    letters: list[LetterRow]
    effects: Counter[str]
    revived: frozenset[str]
    parked: int
    read_again: int


def read(address: str, charges: Path) -> Facts:
    """Reads everything but the storefront's; `charges` is the card service's file."""
    with psycopg.connect(address) as database:
        rows = database.execute(
            "SELECT id, state, code, run, resends, partition, kafka_offset, attempt, finished_at,"
            " superseded_by, result ->> 'reminder' FROM oncepool.requests"
            " WHERE NOT starts_with(id, %s)",
            [PREFIX],
        ).fetchall()
        orders = database.execute("SELECT request_id, placed_at FROM shop.orders").fetchall()
        attempts = database.execute(
            "SELECT request_id, run FROM oncepool.attempts WHERE NOT starts_with(request_id, %s)",
            [PREFIX],
        ).fetchall()
        letters = database.execute(
            "SELECT partition, kafka_offset, reason, detail FROM oncepool.dead_letters"
        ).fetchall()
        effects = database.execute(
            "SELECT request_id FROM shop.orders UNION ALL SELECT request_id FROM shop.invoices "
            "UNION ALL SELECT request_id FROM shop.page_views "
            "UNION ALL SELECT request_id FROM shop.reminders "
            "UNION ALL SELECT request_id FROM shop.parcels "
            "UNION ALL SELECT request_id FROM shop.stock_counts"
        ).fetchall()
        revived = database.execute(
            "SELECT request_id FROM oncepool.transitions "
            "WHERE action = 'retry' AND from_state = 'dead'"
        ).fetchall()
        parked = database.execute(
            "SELECT n FROM oncepool.counters WHERE state = 'waiting' AND code = 'parked'"
        ).fetchall()
        read_again = database.execute(
            "SELECT n FROM oncepool.counters WHERE code = 'read_again'"
        ).fetchall()
    began: dict[str, datetime] = dict(orders)
    # Every call but a refused one: a second call for a charge would be a second run of it.
    calls = [
        call["key"]
        for call in read_ledger(charges)
        if call["event"] != "declined" and not call["key"].startswith(PREFIX)
    ]
    return Facts(
        rows=[JournalRow(*row)._replace(began_at=began.get(row[0])) for row in rows],
        attempts=[FailedAttempt(*row) for row in attempts],
        letters=[LetterRow(*row) for row in letters],
        effects=Counter([row[0] for row in effects] + calls),
        revived=frozenset(row[0] for row in revived),
        parked=sum(row[0] for row in parked),
        read_again=sum(row[0] for row in read_again),
    )


def waiting(address: str) -> int:
    """How many requests wait in the queue."""
    with psycopg.connect(address) as database:
        found = database.execute(
            "SELECT count(*) FROM oncepool.requests WHERE state = 'waiting'"
        ).fetchone()
    return 0 if found is None else int(found[0])
