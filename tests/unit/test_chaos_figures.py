"""The chaos suite's report: how much was judged, and what became of orders."""

from __future__ import annotations

from collections import Counter

from tests.chaos.real.episode import EpisodePlan, Outcome
from tests.chaos.real.facts import Entry, Facts, Row
from tests.chaos.real.faults import Struck
from tests.chaos.real.judge import tell
from tests.chaos.real.more_figures import by_effect
from tests.chaos.real.producer import Copy
from tests.chaos.real.report import figures, page
from tests.chaos.real.resources import Held, Sample
from tests.chaos.real.right_facts import MAIN, right
from tests.chaos.real.traffic import Item, Kind

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
        "orders sent again by a relay": 1, "orders judged for their key's order": 2,
        "rows of the outbox, by state": {"done": 1, "dead": 1},
    }  # fmt: skip
    assert {name: told[name] for name in wanted} == wanted
    shown = page([outcome()], RUN)
    assert all(name[1:] in shown for name in wanted)
    without = outcome()
    without.facts.orders = None
    assert not any("orders" in name for name in figures([without], RUN))


def doubted(facts: Facts, name: str, type_: str, state: str = "done") -> None:
    """Told to its producer at 5."""
    facts.ledger.items[name] = Item(name, Kind.REQUEST, type_, b"k", b"{}", [])
    facts.rows[name] = Row(name, type_, state, "ok", 0, 0, 9, 1)
    facts.ledger.refusals.append((5.0, name, "in_doubt/timeout"))


def test_doubts_are_told_by_what_became_of_them_and_by_whom() -> None:
    seen = outcome()
    facts = seen.facts
    for name in ("sent", "asked", "retried"):
        doubted(facts, name, "charge")
    doubted(facts, "late", "blind")
    doubted(facts, "open", "blind", "in_doubt")
    doubted(facts, "lost", "charge", "failed")
    facts.ledger.refusals.pop()
    facts.lost_answers.add("lost")
    facts.ledger.copies += [
        Copy("sent", Kind.REQUEST, 1, 0, 9, 6.0), Copy("asked", Kind.REQUEST, 0, 0, 9, 4.0),
    ]  # fmt: skip
    facts.retried.add("retried")
    told = figures([seen], RUN)
    assert told["in doubt, by what became of them and by whom"] == {
        "done, by a copy": 1, "done, by its check": 1, "done, by the operator": 1,
        "done, by its own call": 1, "left in doubt": 1, "failed, never told": 1,
    }  # fmt: skip
    assert (told["in doubt and settled"], told["in doubt and left so"]) == (5, 1)


def test_requests_of_an_episode_are_told_by_their_effect() -> None:
    seen = outcome()
    doubted(seen.facts, "c", "charge")
    seen.facts.ledger.items["p"] = Item("p", Kind.REQUEST, "pure", b"k", b"{}", [])
    assert by_effect(seen) == {"transaction": 2, "external": 1, "none": 1}
    assert "<td>4</td><td>2</td><td>1</td><td>1</td>" in page([seen], RUN)


def test_an_episode_is_told_by_the_figures_of_the_report() -> None:
    lines = tell(outcome())
    assert [line.strip() for line in lines[1:]] == [
        f"{name}: {figure}" for name, figure in figures([outcome()], {}).items()
    ]
