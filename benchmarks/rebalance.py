"""What joins, orderly ends and kills cost a group of three consumers under steady load.

    scripts/bench rebalance [--quick] [--planned] [--protocol NAME] [--rounds N] [--rate N]
                            [--out FOLDER]

For the classic protocol (cooperative-sticky) and KIP-848, each with a group of its own: stretches
without any disturbance and stretches with a member that joins, is killed or leaves every five
seconds, in turns, under the same load; nobody is killed with --planned. A producer looks up every
answer and sends again, with the same id, what has none. The exit code is 1 where a request ran
twice, stayed unanswered, or was lost without a cause that can be named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from benchmarks.cpu import used
from benchmarks.machine import facts
from benchmarks.options import options_of
from benchmarks.rebalance_books import Books, Owners, balance, read_effects, read_journal
from benchmarks.rebalance_group import BenchmarkGroup
from benchmarks.rebalance_load import Load
from benchmarks.rebalance_report import ProtocolOutcome, tell, write
from benchmarks.rebalance_stretch import StretchRun, measure
from benchmarks.report import RESULTS, say
from benchmarks.services import services
from benchmarks.spread import in_turns
from benchmarks.stalls import Event
from feedback.journal.migrations import migrate
from stack import Stack
from tests.support.committed_offsets import landed

PARTITIONS = 12
MEMBERS = 3
EVERY = 5.0
"""Seconds between two disturbances."""
LEAD = 1.0
"""Seconds of a stretch before the first one."""
ANSWER_TIMEOUT = 5.0
"""Seconds after which the producer sends again: sooner than a killed member's partitions go on, so
that many requests have two messages and none may run twice."""
PATIENCE = 90.0
"""Seconds after which the producer gives up what is unanswered."""
SHARE = 0.5
"""Of what the group sustains, the steady load: the rest is for processes that start, and for what
a shared machine takes away after the measurement."""
PROTOCOLS = {
    "classic": {
        "ONCEPOOL_KAFKA_PROTOCOL": "classic",
        "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky",
        # As the stack's broker has it for KIP-848.
        "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6",
    },
    "KIP-848": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """What is to be run with each protocol."""

    rounds: int
    kinds: tuple[str, ...]
    """A stretch's disturbances, from three members back to three."""
    calibration: float
    """Seconds that are taken to find out what the group sustains."""
    rate: float
    """Requests a second; 0 = to be found out, with the first protocol."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench rebalance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round with a kill and a join")
    parser.add_argument("--planned", action="store_true", help="joins and orderly ends only")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, help="stretches of either kind (default: 5)")
    parser.add_argument("--rate", type=float, default=0.0, help="requests/s (default: found out)")
    out = "for JSON and drawing; a whole run has benchmarks/results, another one writes none"
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=out)
    given = options_of(parser, "planned", "out", given=arguments)
    plan = RebalancePlan(
        rounds=given.rounds or (1 if given.quick else 5),
        kinds=_kinds(quick=given.quick, planned=given.planned),
        calibration=4.0 if given.quick else 10.0,
        rate=given.rate,
    )
    outcomes: list[ProtocolOutcome] = []
    with services() as stack:
        machine = facts(stack)
        for protocol in given.protocol or PROTOCOLS:
            outcomes.append(run(stack, protocol, plan))
            # The same load for both, so that they can be laid side by side.
            plan = replace(plan, rate=outcomes[0].rate)
    tell(machine, outcomes)
    if given.out or given.whole:
        name = "rebalance-planned" if given.planned else "rebalance"
        write(machine, outcomes, given.out or RESULTS, name)
    return 0 if all(outcome.books.balance for outcome in outcomes) else 1


def _kinds(*, quick: bool, planned: bool) -> tuple[str, ...]:
    """From three members back to three."""
    if planned:
        return ("join", "leave") if quick else ("join", "leave") * 2
    return ("kill", "join") if quick else ("join", "kill", "join", "leave")


def run(stack: Stack, protocol: str, plan: RebalancePlan) -> ProtocolOutcome:
    """One protocol: a group is started, loaded, disturbed in turns, and taken down."""
    say(f"{protocol}: starting a group of {MEMBERS}")
    with _place(stack) as name, TemporaryDirectory(prefix="oncepool-bench-") as folder:
        group = BenchmarkGroup(_environment(stack, name, protocol), Path(folder), PARTITIONS)
        load = Load(stack.kafka, stack.redis, name, name, ANSWER_TIMEOUT)
        taken: list[StretchRun] = []
        try:
            for _ in range(MEMBERS):
                group.join()
            group.settle()
            rate = _warm_up(load, stack, name, plan)
            for number, disturbed in in_turns((False, True), plan.rounds):
                kind = "disturbed" if disturbed else "undisturbed"
                say(f"{protocol}: round {number + 1} of {plan.rounds}, {kind}")
                kinds = plan.kinds if disturbed else ()
                seconds = LEAD + len(plan.kinds) * EVERY
                taken.append(_stretch(load, group, rate, kinds, seconds, stack))
        finally:
            group.end()
            load.close()
        journal = read_journal(stack.database, name)
        return ProtocolOutcome(
            protocol,
            rate,
            [measure(one, journal, load.asked, PARTITIONS) for one in taken],
            _books(stack, name, group, load),
            [member.process.returncode for member in group.members if member.left],
        )


def _warm_up(load: Load, stack: Stack, schema: str, plan: RebalancePlan) -> float:
    """Lets workers learn how long a request takes; returns the rate of the steady load."""
    begin = load.begin("warm-up", plan.rate or float("inf"))
    time.sleep(plan.calibration)  # the length of a measurement, no synchronisation
    end = load.end()
    load.settle(PATIENCE)
    if plan.rate:
        return plan.rate
    begin += plan.calibration / 3
    rows = read_journal(stack.database, schema).values()
    sustained = sum(begin <= row.finished < end for row in rows) / (end - begin)
    rate = round(sustained * SHARE, -1)
    say(f"the group sustains {sustained:,.0f} requests/s; the load is {rate:,.0f}")
    return rate


def _stretch(
    load: Load, group: BenchmarkGroup, rate: float, kinds: Sequence[str], seconds: float,
    stack: Stack,
) -> StretchRun:  # fmt: skip
    """Load for so long, with these disturbances or none."""
    roots = [member.process.pid for member in group.alive]
    before = used(roots, stack.data)
    begin = load.begin(f"stretch-{uuid.uuid4().hex[:8]}", rate)
    events: list[Event] = []
    for number, kind in enumerate(kinds):
        _sleep_until(begin + LEAD + number * EVERY, group)
        events.append(Event(time.time(), kind))
        getattr(group, kind)()
    _sleep_until(begin + seconds, group)
    end = load.end()
    after = {} if kinds else used(roots, stack.data)
    if not load.settle(PATIENCE):
        say(f"{load.open} requests are unanswered after {PATIENCE:g} s")
    settling = time.time() - end
    group.settle()
    spent = {part: cost - before.get(part, 0.0) for part, cost in after.items()}
    return StretchRun(begin, end, settling, tuple(events), spent)


def _sleep_until(at: float, group: BenchmarkGroup) -> None:
    while (left := at - time.time()) > 0:
        group.check()
        time.sleep(min(left, 0.25))


def _books(stack: Stack, name: str, group: BenchmarkGroup, load: Load) -> Books:
    """Read when the group has gone: all that it has committed is answered then."""
    return balance(
        load.asked,
        read_journal(stack.database, name),
        read_effects(stack.database, name),
        Owners(landed(stack.kafka, name, name)),
        frozenset(member.instance for member in group.members if member.killed),
        {member.instance: member.given_up for member in group.members},
    )


@contextmanager
def _place(stack: Stack) -> Iterator[str]:
    """The name of a topic, and of a schema with journal and effects, which have no unique key."""
    name = f"bench{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    migrate(stack.database, name)
    schema = sql.Identifier(name)
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(sql.SQL("CREATE TABLE {}.effects (id text NOT NULL)").format(schema))
        yield name
        database.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))
    admin.delete_topics([name])[name].result(30)


def _environment(stack: Stack, name: str, protocol: str) -> dict[str, str]:
    return {
        **os.environ,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPICS": name,
        "ONCEPOOL_KAFKA_GROUP": name,
        "ONCEPOOL_DATABASE_URL": stack.database,
        "ONCEPOOL_DATABASE_SCHEMA": name,
        "ONCEPOOL_REDIS_URL": stack.redis,
        "ONCEPOOL_REDIS_PREFIX": name,
        "ONCEPOOL_WORKERS": "1",
        "ONCEPOOL_LOG_FORMAT": "json",
        **PROTOCOLS[protocol],
    }


if __name__ == "__main__":
    sys.exit(main())
