"""One episode: a group on one topic, with one protocol and one ordering, under faults."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import psutil

from tests.chaos.real import (  # noqa: F401 - their faults register themselves
    database_faults,
    gateway_faults,
    kafka_faults,
    machine_faults,
    member_faults,
    outbox_faults,
    redis_faults,
    worker_faults,
)
from tests.chaos.real.books import FORGOTTEN
from tests.chaos.real.clock import JumpingClock
from tests.chaos.real.facts import (
    Facts,
    commits_of,
    effects_of,
    entries_of,
    failed_runs_of,
    letters_of,
    rows_of,
    size_of,
    statuses_of,
    unread_of,
)
from tests.chaos.real.faults import FAULTS, Lane, LaneRunner, Scene, Struck
from tests.chaos.real.gateway_side import GatewaySide
from tests.chaos.real.members import ROOT, Members, until
from tests.chaos.real.orders import Orders
from tests.chaos.real.outbox_side import OutboxSide
from tests.chaos.real.outside import Outside
from tests.chaos.real.pickled import Pickled
from tests.chaos.real.place import Place
from tests.chaos.real.producer import ChaosProducer
from tests.chaos.real.resources import Sample, Watch
from tests.chaos.real.schedule import schedule
from tests.chaos.real.sides import Sides
from tests.chaos.real.topic import all_messages
from tests.chaos.real.traffic import NOT_TO_FORGET, Traffic
from tests.chaos.real.unplaced import find_places
from tests.chaos.real.witness import Witness, channel_of, channels_of_clients

PROTOCOLS = {
    "range": {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_ASSIGNOR": "range",
              "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"},
    "cooperative-sticky": {"ONCEPOOL_KAFKA_PROTOCOL": "classic",
                           "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky",
                           "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"},
    "consumer": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}  # fmt: skip
PATIENCE = 15.0
"""Seconds without news after which a request is sent again."""
SETTLING = 150.0
"""Seconds in which everything must have come to an end once nothing strikes any more."""
REST = 60.0
"""Seconds for copies that nobody waits for, once every request has its answer."""
OVERTIME = 0.4
RETRIED_AT_ONCE = 200
MEMORY_LIMIT = "700MiB"


@dataclass(frozen=True)
class EpisodePlan:
    """What an episode is to be."""

    name: str
    protocol: str
    ordering: str
    seed: int
    seconds: float
    """Of faults, at least."""
    instances: int
    rate: float
    calm: float
    """Mean seconds between two faults of one lane."""
    kinds: tuple[str, ...] = ()
    """Kinds of faults; all where it is empty."""
    share: tuple[int, int] = (0, 1)
    """Which of how many shares of the kinds comes first, each of them once."""
    requests: int = 0
    """Faults go on until so many were sent, or the seconds and `OVERTIME` of them are over."""
    orders: float = 0.0
    """Orders a second that go through an outbox, beside the other requests."""
    gateway: float = 0.0
    """Share of the requests that go through a gateway."""
    plain: float = 0.0
    """Share of the requests that are of the plainest type, beside those of the mix."""
    workers: int = 2
    partitions: int = 6
    look_every: float = 2.0
    """Seconds between two looks at what processes hold."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of all instances, beside those that every episode has."""
    own_settings: tuple[Mapping[str, str], ...] = ()
    """Variables of the first instances, each its own."""

    @property
    def results(self) -> str:
        """Topic of result records, which every second episode with an outbox has."""
        return f"{self.name}-results" if self.has_outbox and self.seed % 2 else ""

    @property
    def has_outbox(self) -> bool:
        """A database that forgets orders has had them paid all the same."""
        return self.orders > 0 and FORGOTTEN not in self.kinds


@dataclass
class Outcome(Pickled):
    """What came of an episode."""

    plan: EpisodePlan
    facts: Facts
    began: float
    calm_at: float
    """When the last fault was over."""
    ended: float
    samples: list[Sample] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    operator_retries: int = 0
    exit_codes: list[int] = field(default_factory=list)
    """Of all instances that were told to stop."""
    said: Counter[str] = field(default_factory=Counter)
    """Lines in the logs of all instances, by message."""
    wrong: dict[str, list[str]] = field(default_factory=dict)
    """What does not hold, by check, once it has been judged."""


def lead() -> float:
    """Seconds by which the time of day is ahead of the clock that nobody can set."""
    # Whoever is kept waiting between the two finds less.
    return max(time.time() - time.monotonic() for _ in range(9))


class Episode:
    """Runs a plan at a place."""

    def __init__(
        self, place: Place, plan: EpisodePlan,
        beside: Callable[[Members], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> None:  # fmt: skip
        """`beside`: is at work as long as the members are."""
        self._place, self._plan, self._beside = place, plan, beside
        self._folder = place.folder / plan.name
        (self._folder / "orders").mkdir(parents=True)
        self._entries = self._folder / "entries.log"
        self._clock = JumpingClock(self._folder / "clock")
        self._retried: list[str] = []

    def _sides_of(self, producer: ChaosProducer) -> Sides:
        place, plan = self._place, self._plan
        gateway = None
        if plan.gateway:
            gateway = GatewaySide(
                place, plan.name, self._folder, plan.gateway, producer.ledger, patience=PATIENCE
            )
            producer.elsewhere = gateway.take
        outbox = None
        if plan.has_outbox:
            outbox = OutboxSide(place, plan.name, self._folder, plan.orders, plan.results)
        return Sides(outbox, gateway)

    def run(self) -> Outcome:
        plan, place = self._plan, self._place
        place.prepare(plan.name, plan.partitions, plan.results)
        with Outside(plan.seed, lose=0.02) as outside:
            members = Members(self._environment(outside.port), self._folder)
            without = NOT_TO_FORGET if FORGOTTEN in plan.kinds else frozenset()
            producer = ChaosProducer(
                Traffic(plan.seed, plan.name, without, plan.plain),
                kafka=place.kafka, redis_port=place.redis_port, topic=plan.name,
                prefix=plan.name, rate=plan.rate, window=max(200, int(plan.rate * 4)),
                patience=PATIENCE,
            )  # fmt: skip
            sides = self._sides_of(producer)
            watch = Watch(
                lambda: {member.number: member.pid for member in members.alive},
                lambda: len(producer.pending) + len(sides.pending), plan.look_every, place.services,
            )  # fmt: skip
            witness = Witness(
                place.redis_port, channel_of(plan.name), channels_of_clients(plan.name),
                lambda: size_of(self._entries),
            )  # fmt: skip
            try:
                with self._beside(members):
                    return self._run(members, producer, sides, watch, outside, witness)
            finally:
                sides.end()
                witness.end()
                for member in members.alive:
                    member.kill()
                watch.end()
                producer.end()

    def _run(
        self, members: Members, producer: ChaosProducer, sides: Sides, watch: Watch,
        outside: Outside, witness: Witness,
    ) -> Outcome:  # fmt: skip
        plan, place, lead_before = self._plan, self._place, lead()
        for n in range(plan.instances):
            members.start(**(plan.own_settings[n] if n < len(plan.own_settings) else {}))
        assert until(lambda: len(members.serving) == plan.instances, 90), "no instance serves"
        sides.start()
        producer.start()
        began = time.time()
        assert until(lambda: len(producer.ledger.ends) > 50, 60), "nothing is answered"
        scene = Scene(
            place=place, members=members, orders=Orders(self._folder / "orders"),
            clock=self._clock, entries=self._entries, name=plan.name,
            partitions=plan.partitions, protocol=plan.protocol,
            pending=lambda: len(producer.pending) + len(sides.pending), producer=producer,
            outbox=sides.outbox, gateway=sides.gateway,
        )  # fmt: skip
        struck = self._strike(scene)
        place.mend()
        self._clock.set(0.0)
        calm_at = time.time()
        producer.quiet()
        sides.quiet()
        while len(members.serving) < plan.instances and members.start():
            until(lambda: len(members.serving) >= plan.instances, 40)
        until(lambda: self._settled(producer, sides), SETTLING)
        facts = self._facts(members, producer, outside, witness)
        facts.struck = struck
        facts.lead = max(lead_before, lead())  # where somebody has set it: entries are late then
        producer.end()
        if producer.ledger.unplaced:
            find_places(producer.ledger, all_messages(place.kafka, plan.name))
        sides.finish(facts)
        for member in members.alive:
            member.stop()
        facts.ended_by_itself += members.unexpected_ends()
        codes = [m.process.returncode for m in members.all if m.how == "stopped"]
        self._gather(facts, members)
        if producer.trouble is not None:
            raise producer.trouble
        return Outcome(
            plan, facts, began, calm_at, time.time(), watch.samples,
            sorted([*producer.pending, *sides.pending]), len(self._retried), codes,
            members.all_said(),
        )  # fmt: skip

    def _facts(
        self, members: Members, producer: ChaosProducer, outside: Outside, witness: Witness
    ) -> Facts:
        """What those who look from outside have seen; the rest of it is gathered later."""
        unread = self._unread()
        return Facts(
            ledger=producer.ledger, ordering=self._plan.ordering, rows={}, letters=[], effects=[],
            charges=outside.charges, entries=[], commits=[], statuses={}, names={},
            how={m.name: m.how for m in members.all}, struck=[], heard=witness.heard,
            unread=unread, lost_answers=outside.lost,
            stopped_at={m.name: m.stopped_at for m in members.all if m.how == "stopped"},
        )  # fmt: skip

    def _unread(self) -> list[str]:
        """What the group has not finished of its topic, once it had time for it."""
        found: list[str] = []

        def nothing() -> bool:
            found[:] = unread_of(self._place, self._plan.name)
            return not found

        until(nothing, REST)
        return found

    def _strike(self, scene: Scene) -> list[Struck]:
        plan, lanes = self._plan, []
        wanted = plan.kinds or FAULTS.keys()
        fitting = [f for f in FAULTS.values() if f.fits(scene) and f.kind in wanted]
        for lane in Lane:
            weights = {f.kind: f.weight or float(bool(plan.kinds)) for f in fitting
                       if f.lane is lane}  # fmt: skip
            planned = schedule(plan.seed, lane, weights, plan.calm, plan.share)
            lanes.append(LaneRunner(scene, iter(planned)))
        for runner in lanes:
            runner.start()
        time.sleep(plan.seconds)
        sent = scene.producer.ledger.items
        until(lambda: len(sent) >= plan.requests, plan.seconds * OVERTIME)
        for runner in lanes:
            runner.end()
        for runner in lanes:
            assert runner.join(150), "a fault does not come to its end"
        return sorted(itertools.chain(*(r.struck for r in lanes)), key=lambda s: s.began)

    def _settled(self, producer: ChaosProducer, sides: Sides) -> bool:
        """Whether everything has its answer; an operator retries what is dead meanwhile."""
        if not producer.pending and sides.settled():
            waiting = self._place.query(
                f"SELECT count(*) FROM {self._plan.name}.requests"
                " WHERE state IN ('waiting', 'running')"
            )
            return bool(waiting[0][0] == 0)
        dead = self._place.query(f"SELECT id FROM {self._plan.name}.requests WHERE state = 'dead'")
        if ids := [name for (name,) in dead][:RETRIED_AT_ONCE]:
            subprocess.run(
                [sys.executable, "-m", "consumer", "requests", "retry", *ids, "--yes"],
                cwd=ROOT, env={**os.environ, **self._environment(0)}, check=False,
                capture_output=True,
            )  # fmt: skip
            self._retried += ids
        time.sleep(0.5)
        return False

    def _gather(self, facts: Facts, members: Members) -> None:
        place, name = self._place, self._plan.name
        if place.pooler is not None:
            place.pooler.drop_idle()
        until(lambda: not self._left(), 5)
        facts.left = self._left()
        facts.rows = rows_of(place, name)
        facts.letters = letters_of(place, name)
        facts.effects = effects_of(place, name)
        facts.entries = entries_of(self._entries)
        facts.commits = commits_of(place, name)
        facts.statuses = statuses_of(place, name, list(facts.ledger.items))
        facts.failed_runs = failed_runs_of(place, name)
        facts.retried = set(self._retried)
        members.all_said()
        facts.read_again = [gap for member in members.all for gap in member.read_again]
        facts.names = {m.pid: m.name for m in members.all}

    def _left(self) -> list[str]:
        """Processes of this episode, and transactions of ours that are open."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            try:
                if process.environ().get("CHAOS_SCHEMA") == self._plan.name:
                    found.append(f"process {process.info['pid']}: {process.info['cmdline']}")
            except psutil.Error:
                continue
        rows = self._place.query(
            "SELECT pid, state FROM pg_stat_activity WHERE datname = 'chaos'"
            " AND application_name LIKE 'oncepool%'"
        )
        return found + [f"database session {pid}: {state}" for pid, state in rows]

    def _environment(self, outside: int) -> dict[str, str]:
        plan, place = self._plan, self._place
        variables = {
            "ONCEPOOL_APP": "tests.chaos.real.app:app",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": place.kafka,
            "ONCEPOOL_KAFKA_TOPICS": plan.name,
            "ONCEPOOL_KAFKA_GROUP": plan.name,
            "ONCEPOOL_DATABASE_URL": place.gated_database,
            "ONCEPOOL_DATABASE_SCHEMA": plan.name,
            "ONCEPOOL_REDIS_URL": place.redis_url,
            "ONCEPOOL_REDIS_PREFIX": plan.name,
            "ONCEPOOL_ORDERING": plan.ordering,
            "ONCEPOOL_WORKERS": str(plan.workers),
            "ONCEPOOL_KAFKA_MAX_POLL_INTERVAL": "8",
            "ONCEPOOL_MAX_IN_HAND": "600",
            "ONCEPOOL_LEASE": "5",
            "ONCEPOOL_SWEEP_INTERVAL": "1",
            "ONCEPOOL_GRACE": "10",
            "ONCEPOOL_WORKER_MEMORY_LIMIT": MEMORY_LIMIT,
            "ONCEPOOL_LOG_FORMAT": "json",
            "CHAOS_SCHEMA": plan.name,
            "CHAOS_OUTSIDE": str(outside),
            "CHAOS_ENTRIES": str(self._entries),
            "CHAOS_CLOCK": str(self._folder / "clock"),
            "CHAOS_ORDERS": str(self._folder / "orders"),
            **PROTOCOLS[plan.protocol],
            **({"ONCEPOOL_KAFKA_RESULTS_TOPIC": plan.results} if plan.results else {}),
            **({"ONCEPOOL_DATABASE_PREPARE": "false"} if place.pooler else {}),
            **plan.settings,
        }
        if place.temporary.mounted:
            variables["TMPDIR"] = str(place.temporary.folder)
        return variables
