"""The ledgers for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo.ledger import Ledger
from examples.demo.order_ledger import OrderLedger
from examples.demo.queue_ledger import QueueLedger

SHOWN = 20


class DemoBooks(NamedTuple):
    """What came of a play."""

    messages: Ledger
    orders: OrderLedger
    faults: Sequence[str]
    outbox: bool


def show(console: Console, books: DemoBooks) -> None:
    """Prints the ledgers and whether they balance."""
    ledger, orders = books.messages, books.orders
    console.print()
    for fault in books.faults:
        console.print(Text(f"fault: {fault}"), soft_wrap=True)
    if ledger.sent:
        _show_messages(console, ledger)
    _show_orders(console, orders, outbox=books.outbox)


def _show_messages(console: Console, ledger: Ledger) -> None:
    _print_table(console, "Ledger, in messages", _lines(ledger))
    trouble = [f"run twice: {request}" for request in sorted(ledger.run_twice)]
    trouble += [f"unexplained: {reason}" for reason in ledger.unexplained]
    _print_trouble(console, trouble)
    if ledger.balanced:
        verdict = f"The books balance: {ledger.sent:,} messages, each accounted for once."
    else:
        verdict = f"The books do NOT balance: {ledger.accounted:,} of {ledger.sent:,} accounted for"
    _print_verdict(console, verdict, good=ledger.balanced)


def _show_orders(console: Console, orders: OrderLedger, *, outbox: bool) -> None:
    how = "" if outbox else ", sent before their commit instead of through an outbox"
    _print_table(console, f"Ledger of the orders{how}", _order_lines(orders))
    trouble = [f"charged twice: order {n}" for n in sorted(orders.charged_twice)]
    trouble += [f"charged, and there is no order {n}" for n in sorted(orders.without_order)]
    _print_trouble(console, trouble + orders.wrong)
    if orders.balanced:
        verdict = (
            f"The orders balance: {orders.committed:,} were committed, and each is paid once or "
            f"declined; {orders.rolled_back:,} were rolled back, and none of them was charged."
        )
    elif outbox:
        verdict = "The orders do NOT balance."
    else:
        verdict = (
            f"The orders do NOT balance: {len(orders.without_order):,} customers were charged for "
            f"orders that were rolled back. With the outbox nobody is: run it without --no-outbox."
        )
    _print_verdict(console, verdict, good=orders.balanced)


def _print_table(console: Console, title: str, lines: Sequence[tuple[str, int, str]]) -> None:
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    for name, count, meaning in lines:
        table.add_row(Text(name), f"{count:,}" if name else "", Text(meaning))
    console.print(table)


def _print_trouble(console: Console, trouble: Sequence[str]) -> None:
    for line in trouble[:SHOWN]:
        console.print(Text(line, style="red"), soft_wrap=True)
    if len(trouble) > SHOWN:
        console.print(Text(f"and {len(trouble) - SHOWN} more; --json has all", style="red"))


def _print_verdict(console: Console, verdict: str, *, good: bool) -> None:
    console.print(Text(verdict, style="bold green" if good else "bold red"), soft_wrap=True)


def _order_lines(orders: OrderLedger) -> list[tuple[str, int, str]]:
    """What is told: name, number, and what it means."""
    return [
        ("orders begun", orders.begun, "in a transaction of the storefront's"),
        ("committed", orders.committed, ""),
        ("rolled back by customers", orders.taken_back, "who changed their minds"),
        ("rolled back by kills", orders.cut_off, "open when the storefront was killed"),
        ("", 0, ""),
        ("paid once", orders.paid_once, "the card service has one call, of the same amount"),
        ("declined", orders.declined, "and it has none"),
        ("sent again by a relay", orders.sent_again, "under the same id"),
        ("", 0, ""),
        ("charged without an order", len(orders.without_order), ""),
        ("charged twice", len(orders.charged_twice), ""),
        ("otherwise wrong", len(orders.wrong), ""),
    ]


def _lines(ledger: Ledger) -> list[tuple[str, int, str]]:
    """What is told: name, number, and what it means."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(ledger.by_kind.items()))
    first = ledger.sent - ledger.resent
    return [
        ("sent", first, f"{kinds}; {ledger.requests:,} different ids"),
        ("resent", ledger.resent, "same id, as no answer had come or the run had failed"),
        ("", 0, ""),
        ("done once", ledger.done_once, "ran, and its effects are committed"),
        ("answered from the journal", ledger.answered, "copies: nothing ran"),
        ("settled by a later copy", ledger.settled_later, "the run had failed, or was in doubt"),
        ("lost at commit", ledger.lost_at_commit, "given up while its commit was unclear"),
        ("lost in the killed process", ledger.lost_in_killed, "committed by it, and not finished"),
        ("read again", ledger.read_again, "by its next owner, and answered: nothing ran twice"),
        ("given up at a stop", ledger.given_up, "copies: their request was parked, or has run"),
        *((f"rejected, {why}", n, "") for why, n in sorted(ledger.rejected.items())),
        *((f"failed, {why}", n, "") for why, n in sorted(ledger.failed.items())),
        ("superseded", ledger.superseded, "a newer request of the same reference took its place"),
        ("", 0, ""),
        *_queue_lines(ledger.queue),
        ("", 0, ""),
        ("run twice", len(ledger.run_twice), ""),
        ("unexplained", len(ledger.unexplained), ""),
    ]


def _queue_lines(queue: QueueLedger) -> list[tuple[str, int, str]]:
    """Of these, what went through the waiting queue: requests."""
    late = f"and never before; in the middle {queue.lateness:.1f} s after it"
    return [
        ("of these: delayed, run when due", queue.delayed, "not before the time that was named"),
        ("asked for by another, run when due", queue.followed, late),
        *((f"retried, done at attempt {n}", queue.retried[n], "") for n in sorted(queue.retried)),
        ("coalesced, run as the newest", queue.counted, ""),
        ("superseded, and the newest is done", queue.superseded, ""),
        ("dead, retried by an operator, done", queue.revived, "once its cause was gone"),
        ("parked by a consumer that stopped", queue.parked, "others have run them"),
    ]
