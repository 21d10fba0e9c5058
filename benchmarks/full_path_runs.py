"""Where a run takes place, what runs there, and how fast it was, by the rows that it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from psycopg import sql

from benchmarks.load import create_topic, produce
from benchmarks.tally import FOLDER
from feedback.contract.ids import uuid7
from feedback.journal.migrations import migrate
from stack import Stack

ROOT = Path(__file__).parents[1]
WARM_UP = 0.2
"""Part of a run that is not measured: processes start, durations of types are learnt."""
LONGEST = 300.0
"""Seconds after which a run is given up."""
POLL = 0.1


@dataclass(frozen=True, slots=True)
class RunNames:
    """Names of one run's own: nothing is shared with another run but the services."""

    stack: Stack
    name: str
    workers: int
    tree: Path = ROOT
    """The files that Oncepool runs from."""
    tally: Path = Path()
    """Where its processes count: see benchmarks/tally.py."""
    journal: str = ""
    """The schema, where it is not the run's own."""

    @property
    def schema(self) -> str:
        """Where the journal and all other tables are."""
        return self.journal or self.name

    @property
    def environment(self) -> dict[str, str]:
        """For the benchmark's own programs."""
        return {
            **os.environ,
            FOLDER: str(self.tally),
            "KAFKA": self.stack.kafka,
            "DATABASE": self.stack.database,
            "REDIS": self.stack.redis,
            "TOPIC": self.name,
            "GROUP": self.name,
            "SCHEMA": self.schema,
            "PREFIX": self.name,
        }

    @property
    def settings(self) -> dict[str, str]:
        """For Oncepool."""
        return {
            **os.environ,
            FOLDER: str(self.tally),
            "ONCEPOOL_APP": "benchmarks.full_path_app:app",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": self.stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self.name,
            "ONCEPOOL_KAFKA_GROUP": self.name,
            "ONCEPOOL_DATABASE_URL": self.stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": self.schema,
            "ONCEPOOL_REDIS_URL": self.stack.redis,
            "ONCEPOOL_REDIS_PREFIX": self.name,
            "ONCEPOOL_WORKERS": str(self.workers),
            "ONCEPOOL_LOG_LEVEL": "warning",
        }


@contextmanager
def place(stack: Stack, workers: int, tree: Path = ROOT) -> Iterator[RunNames]:
    """A schema with the journal of a tree, the plain design's table and the handlers' table."""
    name = f"bench{uuid.uuid4().hex[:10]}"
    with TemporaryDirectory(prefix="oncepool-tally-") as folder:
        where = RunNames(stack, name, workers, tree, Path(folder))
        with _schema(where):
            try:
                yield where
            finally:
                _clear(where)


@contextmanager
def _schema(where: RunNames) -> Iterator[None]:
    stack, name = where.stack, where.name
    if where.tree == ROOT:
        migrate(stack.database, name)
    else:
        command = [sys.executable, "-m", "consumer", "migrate"]
        settings = where.settings
        subprocess.run(command, cwd=where.tree, env=settings, check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(stack.database, autocommit=True) as connection:
        schema = sql.Identifier(name)
        for table in (
            "{s}.effects (id text NOT NULL, amount int NOT NULL)",
            """{s}.plain (id text PRIMARY KEY, type text NOT NULL, state text NOT NULL,
            finished_at timestamptz NOT NULL DEFAULT clock_timestamp())""",
        ):
            connection.execute(sql.SQL("CREATE TABLE " + table).format(s=schema))
    try:
        yield
    finally:
        with psycopg.connect(stack.database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA {s} CASCADE").format(s=schema))
            connection.execute("CHECKPOINT")  # the next run starts with clean buffers


def _clear(where: RunNames) -> None:
    """Deletes the topic and the statuses of a run, which later runs would feel."""
    AdminClient({"bootstrap.servers": where.stack.kafka}).delete_topics([where.name])
    with redis.Redis.from_url(where.stack.redis) as client:
        cursor = None
        while cursor != 0:
            cursor, keys = client.scan(cursor or 0, f"{where.name}:*", 10_000)
            if keys:
                client.unlink(*keys)


@contextmanager
def instance(
    where: RunNames, module: str = "consumer", **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """One instance, which ends in good order; `settings` by the names of the environment.

    `module`: Oncepool's program, or one that runs it watched.
    """
    environment = {**where.settings, **settings}
    with running([sys.executable, "-m", module, "run"], environment, where.tree) as process:
        yield process
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise RuntimeError(f"oncepool run ended with {process.returncode}")


def fill_topic(where: RunNames, handler: str, count: int, *, ordered: bool = False) -> None:
    """Creates the run's topic with `count` requests in it; ids at random, or `ordered` by time."""
    create_topic(where.stack.kafka, where.name)
    producer = Producer({"bootstrap.servers": where.stack.kafka, "linger.ms": 20})
    produce(producer, where.name, handler.encode(), count, uuid7 if ordered else uuid.uuid4)


def rate(where: RunNames, table: str, count: int) -> float:
    """Requests a second after the warm-up, by the times that stand in the rows."""
    return rate_within(where, table, int(count * WARM_UP), count)


def rate_within(where: RunNames, table: str, first: int, last: int) -> float:
    """Requests a second of those after the first so many, up to the last, by their rows' times."""
    query = sql.SQL(
        "SELECT count(*), extract(epoch FROM max(finished_at) - min(finished_at)) FROM"
        " (SELECT finished_at, row_number() OVER (ORDER BY finished_at) AS n FROM {}"
        " WHERE finished_at IS NOT NULL) r"
        " WHERE n > %s AND n <= %s"
    ).format(sql.Identifier(where.schema, table))
    with psycopg.connect(where.stack.database, autocommit=True) as connection:
        row = connection.execute(query, (first, last)).fetchone()
    if row is None or not row[1]:
        raise RuntimeError("too few requests to measure")
    return float(row[0]) / float(row[1])


@contextmanager
def running(
    command: list[str], environment: dict[str, str], tree: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of a tree, of which nothing is left afterwards."""
    process = subprocess.Popen(command, cwd=tree, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
