"""The chaos suite's report: how much was judged, and what became of orders."""

from __future__ import annotations

from collections import Counter

from tests.chaos.real.episode import EpisodePlan, Outcome
from tests.chaos.real.facts import Entry
from tests.chaos.real.faults import Struck
from tests.chaos.real.report import figures, page
from tests.chaos.real.resources import Held, Sample
from tests.chaos.real.right_facts import MAIN, right

RUN = {"seed": 1, "verdict": "all is well"}


def outcome() -> Outcome:
    plan = EpisodePlan("x", "range", "key", 1, 60.0, 1, 10.0, 1.0, workers=1)
    facts = right()
    facts.entries.append(Entry("a", 0, 1, MAIN, 11))
    facts.struck.append(Struck("database_backend_ended_idle", 100.0, 100.1, "1 of them"))
    assert facts.orders is not None
    facts.orders.rows = Counter(done=1, dead=1)
    held = Held(0, "main", 1, 1, 60.0, 40.0, 20, 5, {"kafka": 3})
    samples = [Sample(2.0 * n, held=[held]) for n in range(40)]
    said = Counter({"partitions assigned": 2, "partitions revoked": 1})
    return Outcome(plan, facts, 0.0, 60.0, 80.0, samples, exit_codes=[0, 3], said=said)


def test_the_report_says_how_much_was_judged() -> None:
    told = figures([outcome(), outcome()], RUN)
    assert told["times that members were given partitions"] == 4
    assert told["times that members gave up partitions"] == 2
    assert told["handlers entered again"] == 2
    assert sum(told["handlers entered again, by cause"].values()) == 2
    assert told["final statuses heard"] == 4
    assert told["lost connections judged alone"] == 2
    assert told["their exit codes"] == {"0": 2, "3": 2}
    assert told["processes judged for growth"] == {"main": 2, "maintenance": 0, "worker": 0}
    assert told["looks at the number of processes"] == 80


def test_orders_are_among_the_figures_and_on_the_page() -> None:
    told = figures([outcome()], RUN)
    wanted = {
        "orders committed": 2, "orders rolled back": 1, "orders paid": 2, "orders answered": 2,
        "orders sent again by a relay": 1, "rows of the outbox, by state": {"done": 1, "dead": 1},
    }  # fmt: skip
    assert {name: told[name] for name in wanted} == wanted
    shown = page([outcome()], RUN)
    assert all(name[1:] in shown for name in wanted)
    without = outcome()
    without.facts.orders = None
    assert not any("orders" in name for name in figures([without], RUN))
