"""The books of the orders: what the storefront's customers ordered against what was charged. Pure.

An order is begun when its transaction is. What the database has of it afterwards was committed, and
must be paid once, or declined and not paid; what it does not have was rolled back, by its customer
or by a kill, and must not be charged at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class OrderRow(NamedTuple):
    """A row of the table of orders."""

    order_id: int
    state: str
    amount_cents: int
    charge_id: str | None = None
    charge_end: str | None = None
    """State and code of its charge, as the storefront was told last."""


class OrderCharge(NamedTuple):
    """A call of the card service that found the card good: money taken, or a repeat of it."""

    order_id: int
    charge_id: str
    amount_cents: int


@dataclass(frozen=True, slots=True)
class OrderBook:
    """All facts that the books of the orders are made of."""

    orders: Sequence[OrderRow] = ()
    begun: Collection[int] = frozenset()
    """Numbers of orders whose transaction was begun, whatever became of it."""
    taken_back: Collection[int] = frozenset()
    """Of these, the ones whose customer changed his mind."""
    charges: Sequence[OrderCharge] = ()
    sends: Mapping[str, int] = field(default_factory=dict)
    """Id of a request -> how often the relay has sent it."""
    left: int = 0
    """Requests that the outbox still waits for."""


@dataclass(slots=True)
class OrderLedger:
    """What became of all orders."""

    begun: int = 0
    committed: int = 0
    taken_back: int = 0
    cut_off: int = 0
    """Rolled back as their storefront was killed."""
    paid_once: int = 0
    declined: int = 0
    sent_again: int = 0
    """Requests that a relay sent more than once, under the same id."""
    without_order: list[int] = field(default_factory=list)
    """Charged, and there is no such order."""
    charged_twice: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """In words, one for each."""

    @property
    def rolled_back(self) -> int:
        """Orders that never were."""
        return self.taken_back + self.cut_off

    @property
    def balanced(self) -> bool:
        """Whether each committed order was paid once, and no other one was charged."""
        return (
            not (self.without_order or self.charged_twice or self.wrong)
            and self.begun == self.committed + self.rolled_back
            and self.committed == self.paid_once + self.declined
        )

    def as_json(self) -> dict[str, Any]:
        """The ledger as one JSON object."""
        return {
            "balanced": self.balanced,
            "begun": self.begun,
            "committed": self.committed,
            "rolled_back_by_customers": self.taken_back,
            "rolled_back_by_kills": self.cut_off,
            "paid_once": self.paid_once,
            "declined_and_not_charged": self.declined,
            "requests_sent_again_by_a_relay": self.sent_again,
            "charged_without_an_order": sorted(self.without_order),
            "charged_twice": sorted(self.charged_twice),
            "wrong": self.wrong,
        }


def balance_orders(book: OrderBook) -> OrderLedger:
    """Makes the ledger."""
    rows = {row.order_id: row for row in book.orders}
    gone = set(book.begun) - rows.keys()
    ledger = OrderLedger(
        begun=len(set(book.begun)),
        committed=len(rows),
        taken_back=len(gone & set(book.taken_back)),
        cut_off=len(gone - set(book.taken_back)),
        sent_again=sum(sends > 1 for sends in book.sends.values()),
    )
    strange = rows.keys() - set(book.begun)
    ledger.wrong = [f"order {order_id}: there, and never begun" for order_id in strange]
    calls: defaultdict[int, list[OrderCharge]] = defaultdict(list)
    for charge in book.charges:
        calls[charge.order_id].append(charge)
    ledger.without_order = [order_id for order_id in calls if order_id not in rows]
    times = Counter(charge.order_id for charge in book.charges)
    ledger.charged_twice = [order_id for order_id, n in times.items() if n > 1]
    for row in rows.values():
        _enter(row, calls[row.order_id], ledger)
    if book.left:
        ledger.wrong.append(f"{book.left} requests in the outbox have no end yet")
    return ledger


def _enter(row: OrderRow, calls: Sequence[OrderCharge], ledger: OrderLedger) -> None:
    match row.state:
        case "paid" if calls:
            charge = calls[0]
            if (charge.charge_id, charge.amount_cents) != (row.charge_id, row.amount_cents):
                ledger.wrong.append(f"order {row.order_id}: {row}, and its charge is {charge}")
            elif len(calls) == 1:
                ledger.paid_once += 1
        case "declined" if not calls:
            ledger.declined += 1
        case _:
            charged = f"charged {len(calls)} times" if calls else "not charged"
            end = f" ({row.charge_end})" if row.charge_end else ""
            ledger.wrong.append(f"order {row.order_id}: {row.state}{end}, and {charged}")
