"""Facts of an episode of the chaos suite in which all is as it has to be."""

from __future__ import annotations

from collections import Counter

from tests.chaos.real.facts import Effect, Entry, Facts, Row, Status
from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.order_facts import OrderFacts
from tests.chaos.real.producer import Copy, SendLedger
from tests.chaos.real.traffic import Item, Kind
from tests.chaos.real.witness import Final, Heard
from tests.support.committed_offsets import Landed

MAIN, OTHER = 10, 20


def right() -> Facts:
    """Two requests of one key, one malformed message, three orders: all as it has to be."""
    ledger = SendLedger()
    for n, name in enumerate(("a", "b"), 1):
        ledger.items[name] = Item(name, Kind.REQUEST, "move", b"k", b"{}", [], n)
        ledger.copies.append(Copy(name, Kind.REQUEST, 0, 0, n, 0.0))
        ledger.ends[name] = ("done", "ok")
    ledger.copies.append(Copy("odd", Kind.MALFORMED, 0, 0, 3, 0.0))
    return Facts(
        ledger=ledger,
        ordering="key",
        rows={
            "a": Row("a", "move", "done", "ok", 0, 0, 1, 1),
            "b": Row("b", "move", "done", "ok", 0, 0, 2, 1),
            "o1": Row("o1", "pay", "done", "ok", 0, 0, 4, 1),
            "o2": Row("o2", "pay", "done", "ok", 0, 0, 5, 1),
        },
        letters=[((0, 3), "malformed")],
        effects=[
            Effect(1, "a", "k", 1, "move", 0, 1, MAIN),
            Effect(2, "b", "k", 2, "move", 0, 2, MAIN),
            Effect(3, "o1", "o", 1, "pay", 0, 4, MAIN),
            Effect(4, "o2", "o", 2, "pay", 0, 5, MAIN),
        ],
        orders=OrderFacts(
            begun=3,  # the third one was rolled back
            committed=["o1", "o2"],
            answers=[("o1", "done/ok"), ("o2", "dead/worker_died")],  # retried by the operator
            sends={"o1": 2, "o2": 1},
            open=[],
            turns={"o": ["o1", "o2"]},
            spots={"o1": (0, 4), "o2": (0, 5)},
        ),
        gateway=GatewayFacts(ids={"b"}, last={"b": "done"}),
        charges=Counter(),
        entries=[Entry("a", 0, 1, MAIN, 11, clock=6.0), Entry("b", 0, 2, MAIN, 11, clock=6.0)],
        commits=[Landed(0, 4, "1;me-1;", 1005.0)],
        lead=1000.0,
        stopped_at={"me": 8.0},
        statuses={"a": Status("done", "ok", 1), "b": Status("done", "ok", 1)},
        names={MAIN: "me", OTHER: "other"},
        how={"me": "stopped", "other": "killed"},
        heard=Heard(final={name: Final("done", "000019", 90) for name in ("a", "b")}),
    )
