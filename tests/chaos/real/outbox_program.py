"""A producer with an outbox, as a process: orders in transactions of its own, and their answers.

Some orders are taken back before their commit. Once the file CLOSING is there nothing new is
ordered; answers are worked on until the process is killed. A database that is away is asked again:
which orders were committed says its table alone.
"""

from __future__ import annotations

import os
import random
import threading
import time
import traceback
from pathlib import Path

import psycopg

from feedback import outbox
from feedback.client.send_clock import SendClock
from feedback.outbox import rows
from tests.chaos.real.order_facts import IN_TURN

SCHEMA = os.environ["CHAOS_SCHEMA"]
DATABASE = os.environ["CHAOS_DATABASE"]
CLOSING = Path(os.environ["CHAOS_CLOSING"])
"""Made when nobody shall order any more: a signal would end a process that has just begun."""
CLOSED = Path(os.environ["CHAOS_CLOSED"])
"""Made when nobody orders any more."""
RATE = float(os.environ["CHAOS_ORDERS_RATE"])
BUYERS = 4
KEYS = 30
LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
TAKEN_BACK = 0.15
AT_ONCE, TURNS = 100, 20
SKEW = 600
"""Seconds by which the clock of a producer may be off."""
GONE = (psycopg.Error, psycopg.Rollback)
"""What is raised where a connection is gone: what has to be rolled back is so by then, and psycopg
lets Rollback out."""
PLACE = f"INSERT INTO {SCHEMA}.orders (key) VALUES (%s) RETURNING number"
ANSWER = f"""
WITH answers AS (
    DELETE FROM {SCHEMA}_outbox.inbox WHERE n = ANY(ARRAY(
        SELECT n FROM {SCHEMA}_outbox.inbox ORDER BY n LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, state, code
) INSERT INTO {SCHEMA}.answers (id, state, code) SELECT id, state, code FROM answers
"""


def connect() -> psycopg.Connection[tuple[object, ...]]:
    """Its backend may be ended as those of relays are."""
    return psycopg.connect(
        DATABASE, autocommit=True, connect_timeout=5, prepare_threshold=None,
        application_name="oncepool orders",
    )  # fmt: skip


def order(closing: threading.Event, seed: int) -> None:
    """One buyer: an order and its request in one transaction, again and again."""
    chance = random.Random(seed)
    while not closing.is_set():
        try:
            with connect() as connection:
                while not closing.wait(chance.expovariate(RATE / BUYERS)):
                    place(connection, chance)
        except GONE:
            closing.wait(0.2)


def place(connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
    """One order, which its buyer may take back."""
    with connection.transaction():
        key = key_of(connection, chance)
        [(number,)] = connection.execute(PLACE.encode(), [key]).fetchall()
        outbox.add(
            connection, "pay", {"key": key, "n": number},
            request_id=f"{SCHEMA}-order-{number}", key=key,
        )  # fmt: skip
        time.sleep(chance.uniform(0, 0.02))  # a kill finds some open
        if chance.random() < TAKEN_BACK:
            raise psycopg.Rollback


def key_of(connection: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> str:
    """Of any number of orders at once, or until the end of this one of no other."""
    number = chance.randrange(KEYS)
    if number % 2:
        return f"o{number}"
    [(mine,)] = connection.execute(LOCK.encode(), [f"{SCHEMA} {number}"]).fetchall()
    return f"{IN_TURN}-{number}" if mine else f"o{number}"


def answer(buyers: list[threading.Thread], closing: threading.Event) -> None:
    """Works on answers, each in the transaction that takes it from the inbox."""
    while True:
        if CLOSING.exists():
            closing.set()
        if not any(buyer.is_alive() for buyer in buyers):
            CLOSED.touch()
        try:
            with connect() as connection:
                for _ in range(TURNS):
                    if not connection.execute(ANSWER.encode(), [AT_ONCE]).rowcount:
                        time.sleep(0.1)
        except psycopg.Error:
            time.sleep(0.2)


def end_at_once(told: threading.ExceptHookArgs) -> None:
    """A thread that ends for another reason than the database's is a fault of its own: it shows."""
    traceback.print_exception(told.exc_value)
    os._exit(1)


if __name__ == "__main__":
    threading.excepthook = end_at_once
    skew = random.randint(-SKEW, SKEW) * 10**9
    rows._CLOCK = SendClock(lambda: time.time_ns() + skew)  # type: ignore[misc]
    over = threading.Event()
    threads = [
        threading.Thread(target=order, args=(over, random.randrange(2**31)), daemon=True)
        for _ in range(BUYERS)
    ]
    for thread in threads:
        thread.start()
    answer(threads, over)
