"""The whole circle: a storefront whose orders are charged through its outbox, and their books."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import psycopg

from examples.demo import order_facts
from examples.demo.order_ledger import OrderLedger, balance_orders
from examples.demo.place import DemoPlace
from examples.demo.program import Program
from examples.demo.shopping import DATABASE

CAUGHT = 10.0
"""Seconds to wait for a moment in which a program has a transaction open."""
SETTLED = 0.02
"""Seconds in which what a held program has sent reaches the database."""
RESEND_AFTER = 8
"""Seconds without news after which the relay sends again: longer than a session."""
SELLING = 30
"""Orders by which the shop is taken to be busy."""
_BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE %s AND state = 'idle in transaction'
AND query ~* %s
"""
_SOLD = "SELECT count(*) FROM storefront.orders"


class Circle:
    """Storefront and relay, each one process at a time. For `with`."""

    def __init__(self, place: DemoPlace, tell: Callable[[str], None], *, outbox: bool) -> None:
        self._place, self._tell = place, tell
        self._outbox = outbox
        self._open = ExitStack()
        self._programs: list[Program] = []
        self._closed = False
        self._notes = place.folder / "taken-back.txt"

    def __enter__(self) -> Self:
        self._database = self._open.enter_context(
            psycopg.connect(self._place.storefront, autocommit=True)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> None:
        """Opens the shop."""
        self._storefront = self._start_storefront("storefront")
        if self._outbox:
            self._relay = self._start_relay("relay")

    @property
    def does(self) -> dict[str, str]:
        """Name of a program -> what it does, in words."""
        return {program.name: program.does for program in self._programs}

    @property
    def over(self) -> bool:
        """Whether the shop has been closed, and all of its orders have come to an end."""
        return self._closed and not self._storefront.alive

    @property
    def sells(self) -> bool:
        """Whether there have been some orders since the last start of a program."""
        return self._count(_SOLD) >= self._sold + SELLING

    def look(self) -> None:
        """Raises DemoFailed where a program ended by itself."""
        for program in self._programs:
            program.look()

    def kill_relay(self) -> str:
        """Ends the relay with SIGKILL, in the middle of its work, and starts another one."""
        told = self._kill(self._relay, "oncepool relay%", ".")
        self._relay = self._start_relay("relay 2")
        return told

    def kill_storefront(self) -> str:
        """The same of the storefront, with orders that are not committed yet."""
        told = self._kill(self._storefront, "storefront", r"^\s*INSERT|\madd_requests\M")
        self._storefront = self._start_storefront("storefront 2")
        return told

    def close_shop(self) -> None:
        """Nobody orders any more; what was ordered is brought to its end."""
        self._closed = True
        self._storefront.stop()

    def stop(self) -> None:
        """Ends the programs. Raises DemoFailed."""
        if self._storefront.alive:
            self._storefront.kill()  # it has had its time
        if self._outbox:
            self._relay.stop()
            self._relay.ended()

    def books(self) -> OrderLedger:
        """The books, once nobody charges any more."""
        place = self._place
        return balance_orders(order_facts.read(place.storefront, self._notes, place.charges))

    def _kill(self, program: Program, application: str, last: str) -> str:
        """Once it is in transactions whose `last` statement matches; held, it cannot end them."""
        end = time.monotonic() + CAUGHT
        while True:
            program.hold()
            time.sleep(SETTLED)
            busy = self._count(_BUSY, application, last)
            if busy or time.monotonic() > end:
                break
            program.go_on()
            time.sleep(SETTLED)
        program.kill()
        return (
            f"{program.name} was killed with SIGKILL (pid {program.pid}), "
            f"with {busy} transactions open"
        )

    def _start_storefront(self, name: str) -> Program:
        how = [] if self._outbox else ["--no-outbox"]
        command = ["examples.demo.shopping", str(self._notes), *how]
        return self._start(name, command, {DATABASE: self._place.storefront})

    def _start_relay(self, name: str) -> Program:
        return self._start(name, ["consumer", "relay"], relay_settings(self._place))

    def _start(self, name: str, command: list[str], settings: dict[str, str]) -> Program:
        place = self._place
        program = Program(name, command, {**place.clients(), **settings}, place.folder)
        self._open.callback(program.close)
        self._programs.append(program)
        self._sold = self._count(_SOLD)
        self._tell(f"{name} starts (pid {program.pid})")
        return program

    def _count(self, statement: str, *values: Any) -> int:
        found = self._database.execute(statement.encode(), values).fetchone()
        return 0 if found is None else int(found[0])


def relay_settings(place: DemoPlace) -> dict[str, str]:
    """What a relay has to know, beside what all clients do."""
    return {
        "ONCEPOOL_OUTBOX_DATABASE_URL": place.storefront,
        "ONCEPOOL_OUTBOX_INBOX": "true",
        "ONCEPOOL_OUTBOX_RESEND_AFTER": str(RESEND_AFTER),
    }
