"""What is at work beside the group where orders go through an outbox: a producer and two relays.

In every second episode the relays read result records, too.

Their database is that of the group, and they reach it, Kafka and Redis through the same gates: the
faults that strike consumers strike them, too.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psycopg

from feedback.outbox.migrations import migrate
from tests.chaos.real.frozen import held
from tests.chaos.real.members import ROOT
from tests.chaos.real.order_facts import IN_TURN, OrderFacts, first_spots
from tests.chaos.real.place import Place
from tests.chaos.real.topic import all_messages

RELAYS = 2
RESEND_AFTER = 8
TABLES = """
CREATE TABLE {s}.orders (number bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL);
CREATE TABLE {s}.answers (id text NOT NULL, state text NOT NULL, code text);
"""
OPEN = frozenset({"unsent", "sent", "unanswered", "undeliverable"})
"""States of rows whose requests have no end."""
STOPPED = (0, 3)
"""Exit codes of a relay that was told to stop: nothing on its way, or something."""
PRODUCER, RELAY = "orders", "relay"
PROGRAMS = {PRODUCER: ["tests.chaos.real.outbox_program"], RELAY: ["consumer", "relay"]}


@dataclass
class OutboxProgram:
    """One process."""

    role: str
    process: subprocess.Popen[bytes]
    told: bool = False
    """Whether a signal was sent to end it."""
    ended_well: bool = False
    """Whether it ended then, with an exit code as it should be."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class OutboxSide:
    """Tables and processes of one episode. What is ended here is replaced."""

    def __init__(
        self, place: Place, name: str, folder: Path, rate: float, results: str = ""
    ) -> None:
        """`name`: topic and prefix, and the schema of the orders; `rate`: orders a second.

        `results`: the topic of result records that relays read, too.
        """
        self._results = results
        self._place, self._name, self._folder, self._rate = place, name, folder, rate
        self._closing, self._closed = folder / "orders-closing", folder / "orders-closed"
        self.all: list[OutboxProgram] = []

    def start(self) -> None:
        with psycopg.connect(self._place.database, autocommit=True) as connection:
            migrate(connection, f"{self._name}_outbox", [])
        self._place.query(TABLES.format(s=self._name))
        for role in [PRODUCER] + RELAYS * [RELAY]:
            self._start(role)

    def alive(self, role: str) -> list[OutboxProgram]:
        return [program for program in self.all if program.role == role and program.alive]

    def busy(self, role: str) -> bool:
        """Whether one of them has a transaction open."""
        return self._open_transactions(role) > 0

    def replace(self, role: str, chance: random.Random, number: signal.Signals) -> str:
        """Ends one of them by a signal, and starts another; what was seen of it."""
        victim = chance.choice(self.alive(role))
        open_ = self._open_transactions(role)
        victim.told = True
        victim.process.send_signal(number)
        code = victim.process.wait(60)
        victim.ended_well = number == signal.SIGKILL or code in STOPPED
        self._start(role)
        return f"{role} {victim.process.pid}, {open_} transactions open"

    def freeze(self, chance: random.Random, seconds: float) -> str:
        """Stops a relay in its tracks for a while."""
        victim = chance.choice(self.alive(RELAY))
        seen = held(victim.process.pid, seconds)
        open_ = self._open_transactions(RELAY)
        return f"{RELAY}, {seen}, {open_} transactions open" if seen else ""

    def close(self) -> None:
        """Nothing is ordered any more."""
        self._closing.touch()

    def settled(self) -> bool:
        """Whether every order has its answer, and the producer has worked on it.

        What is dead waits for the operator.
        """
        if not self._closed.exists():  # an order may be committed yet
            return False
        [(left,)] = self._place.query(
            f"SELECT (SELECT count(*) FROM {self._name}_outbox.requests)"
            f" + (SELECT count(*) FROM {self._name}_outbox.inbox)"
            f" + (SELECT count(*) FROM {self._name}.requests WHERE type = 'pay' AND state = 'dead')"
        )
        return bool(left == 0)

    def end(self) -> None:
        """Ends all of them."""
        for program in self.all:
            if program.alive:
                program.process.kill()
                program.process.wait(30)

    def wrong_ends(self) -> list[str]:
        """Processes that ended without having been told to, or did not end as they should."""
        return [
            f"{program.role}: exit code {program.process.poll()}, told to end: {program.told}"
            for program in self.all
            if program.told != (not program.alive) or program.told != program.ended_well
        ]

    def facts(self) -> OrderFacts:
        """What is in the tables now."""
        name, query = self._name, self._place.query
        [(last,)] = query(f"SELECT pg_sequence_last_value('{name}.orders_number_seq')")
        committed = query(f"SELECT number, key FROM {name}.orders")
        answers = query(f"SELECT id, state, code FROM {name}.answers")
        sends = query(f"SELECT id, sends, state FROM {name}_outbox.all_requests ORDER BY seq")
        keys = {f"{name}-order-{number}": key for number, key in committed}
        turns: dict[str, list[str]] = {}
        for id_, *_ in sends:
            if keys.get(id_, "").startswith(IN_TURN):
                turns.setdefault(keys[id_], []).append(id_)
        names = {id_ for each in turns.values() for id_ in each}
        return OrderFacts(
            begun=last or 0,
            committed=list(keys),
            answers=[(id_, f"{state}/{code}") for id_, state, code in answers],
            sends={id_: count for id_, count, _ in sends},
            open=[f"{id_}: {state}" for id_, _, state in sends if state in OPEN],
            rows=Counter(state for *_, state in sends),
            turns=turns,
            spots=first_spots(all_messages(self._place.kafka, name), names),
        )

    def _open_transactions(self, role: str) -> int:
        [(found,)] = self._place.query(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'chaos'"
            " AND application_name = %s AND state = 'idle in transaction'", [f"oncepool {role}"],
        )  # fmt: skip
        return int(found)

    def _start(self, role: str) -> None:
        with (self._folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *PROGRAMS[role]],
                cwd=ROOT, env={**os.environ, **self._environment()}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.all.append(OutboxProgram(role, process))

    def _environment(self) -> dict[str, str]:
        place, name = self._place, self._name
        return {
            "ONCEPOOL_OUTBOX_DATABASE_URL": place.gated_database,
            "ONCEPOOL_OUTBOX_SCHEMA": f"{name}_outbox",
            "ONCEPOOL_OUTBOX_INBOX": "true",
            "ONCEPOOL_OUTBOX_RESEND_AFTER": str(RESEND_AFTER),
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": place.kafka,
            "ONCEPOOL_KAFKA_TOPIC": name,
            "ONCEPOOL_REDIS_URL": place.redis_url,
            "ONCEPOOL_REDIS_PREFIX": name,
            "ONCEPOOL_LOG_FORMAT": "json",
            "CHAOS_SCHEMA": name,
            "CHAOS_DATABASE": place.gated_database,
            "CHAOS_CLOSING": str(self._closing),
            "CHAOS_CLOSED": str(self._closed),
            "CHAOS_ORDERS_RATE": str(self._rate),
            **({"ONCEPOOL_KAFKA_RESULTS_TOPIC": self._results} if self._results else {}),
        }
