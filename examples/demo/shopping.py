"""Customers who order in the storefront, and the storefront that hears what their charges became.

    python -m examples.demo.shopping NOTES [--no-outbox]

Runs until SIGTERM, which closes the shop: nobody orders any more, and the process ends when every
order has come to an end. NOTES is a file outside of the database: the numbers of orders that their
customers took back.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from examples.shop.storefront import (
    Basket,
    Connection,
    ask_for_answers,
    place_order,
    place_order_unsafely,
    settle_one,
    take_answers,
)
from feedback import Client, StoreUnavailable

DATABASE = "STOREFRONT_DATABASE_URL"
CUSTOMERS = 2
PACE = 0.08
"""Seconds between two orders of a customer, in the middle."""
THOUGHT = 0.05
"""Seconds for which an order is open, in the middle, until its customer has made up his mind."""
CHANGED_MIND, DECLINED = 0.15, 0.05
PATIENCE = 45.0
"""Seconds after the end of the orders in which their charges have to come to an end."""
_OPEN = "SELECT count(*) FROM storefront.orders WHERE state IN ('placed', 'unsettled')"


class Notes:
    """Appends lines to a file. Safe for threads, and for processes that are killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, order_id: int) -> None:
        """One line, with one call of the system: it is there, or it is not."""
        os.write(self._file, f"{order_id}\n".encode())


class Shop:
    """All threads of the storefront."""

    def __init__(self, address: str, notes: Notes, client: Client, *, outbox: bool) -> None:
        self._address, self._notes, self._client = address, notes, client
        self._outbox = outbox
        self._closing = threading.Event()
        self._shut = threading.Event()
        """Nobody orders any more."""

    def close(self) -> None:
        """Nobody comes in any more."""
        self._closing.set()

    def run(self) -> None:
        """Until it is closed and every order has come to its end, or has had its time."""
        customers = [threading.Thread(target=self._guarded(self._order)) for _ in range(CUSTOMERS)]
        desks = [
            threading.Thread(target=self._guarded(desk), daemon=True)
            for desk in (self._hear if self._outbox else self._ask, self._settle)
        ]
        for thread in (*customers, *desks):
            thread.start()
        for thread in customers:
            thread.join()
        with self._connect() as connection:
            end = time.monotonic() + PATIENCE
            while connection.execute(_OPEN).fetchone() != (0,):
                if time.monotonic() > end:
                    break  # the books will tell
                time.sleep(0.1)
        self._shut.set()
        for thread in desks:
            thread.join(PATIENCE)

    def _order(self) -> None:
        """One customer after the other; some of them change their minds before the commit."""
        chance = random.Random()
        with self._connect() as connection:
            while not self._closing.wait(chance.uniform(0, 2 * PACE)):
                declined = chance.random() < DECLINED
                basket = Basket(
                    f"customer {chance.randrange(97)}",
                    "declined" if declined else f"tok-{chance.randrange(31)}",
                    chance.randint(100, 20_000),
                )
                changed_mind = chance.random() < CHANGED_MIND
                with connection.transaction():
                    order_id = self._place(connection, basket)
                    time.sleep(chance.uniform(0, 2 * THOUGHT))
                    if changed_mind:
                        self._notes.write(order_id)
                        raise psycopg.Rollback

    def _place(self, connection: Connection, basket: Basket) -> int:
        if self._outbox:
            return place_order(connection, basket)
        return place_order_unsafely(connection, basket, self._client)

    def _hear(self) -> None:
        """Answers out of the inbox, as soon as the relay says that there are some."""
        with self._connect() as connection:
            connection.execute("LISTEN oncepool_outbox_settled")
            while not self._shut.is_set():
                while take_answers(connection):
                    pass
                for _ in connection.notifies(timeout=0.5, stop_after=1):
                    pass

    def _ask(self) -> None:
        """Answers out of Redis."""
        with self._connect() as connection:
            while not self._shut.wait(0.2):
                try:
                    ask_for_answers(connection, self._client)
                except StoreUnavailable:
                    continue  # a busy machine: the next look will tell

    def _settle(self) -> None:
        with self._connect() as connection:
            while not self._shut.wait(0.1):
                while settle_one(connection, self._client) and not self._shut.wait(0.02):
                    pass

    def _connect(self) -> Connection:
        return psycopg.connect(self._address, autocommit=True, application_name="storefront")

    @staticmethod
    def _guarded(work: Callable[[], None]) -> Callable[[], None]:
        """A thread whose work failed ends the process: the demo says so, and shows the log."""

        def guarded() -> None:
            try:
                work()
            except BaseException:  # noqa: BLE001 - whatever it is
                sys.excepthook(*sys.exc_info())
                os._exit(1)

        return guarded


def main() -> None:
    """Keep the shop open until a signal comes."""
    parser = argparse.ArgumentParser(prog="shopping", description="Customers of the storefront")
    parser.add_argument("notes", type=Path)
    parser.add_argument("--no-outbox", action="store_true", help="send before the commit")
    options = parser.parse_args()
    with Client.from_env() as client:
        address, notes = os.environ[DATABASE], Notes(options.notes)
        shop = Shop(address, notes, client, outbox=not options.no_outbox)
        signal.signal(signal.SIGTERM, lambda _number, _frame: shop.close())
        shop.run()


if __name__ == "__main__":
    main()
