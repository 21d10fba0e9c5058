"""The ledger for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo.ledger import Ledger
from examples.demo.queue_ledger import QueueLedger

SHOWN = 20


def show(console: Console, ledger: Ledger, faults: Sequence[str]) -> None:
    """Prints the ledger and whether it balances."""
    console.print()
    for fault in faults:
        console.print(Text(f"fault: {fault}"), soft_wrap=True)
    table = Table(title="Ledger, in messages", box=None, pad_edge=False, title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    for name, count, meaning in _lines(ledger):
        table.add_row(Text(name), f"{count:,}" if name else "", Text(meaning))
    console.print(table)
    trouble = [f"run twice: {request}" for request in sorted(ledger.run_twice)]
    trouble += [f"unexplained: {reason}" for reason in ledger.unexplained]
    for line in trouble[:SHOWN]:
        console.print(Text(line, style="red"), soft_wrap=True)
    if len(trouble) > SHOWN:
        console.print(Text(f"and {len(trouble) - SHOWN} more; --json has all", style="red"))
    if ledger.balanced:
        verdict = f"The books balance: {ledger.sent:,} messages, each accounted for once."
        console.print(Text(verdict, style="bold green"))
    else:
        verdict = f"The books do NOT balance: {ledger.accounted:,} of {ledger.sent:,} accounted for"
        console.print(Text(verdict, style="bold red"))


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
