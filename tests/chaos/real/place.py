"""Where a run takes place: a stack of its own, a gate before each service, a database, a topic."""

from __future__ import annotations

import os
import pwd
import random
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg
import redis
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from feedback.journal.migrations import migrate
from stack.places import port_is_free
from stack.postgres import enterable
from tests.chaos.real.small_disk import SmallDisk
from tests.support import run
from tests.support.kafka_proxy import KafkaProxy
from tests.support.pooler import Pooler
from tests.support.proxy import Proxy

TABLES = """
CREATE TABLE {s}.effects (seq bigserial, id text, key text, n int, type text, partition int,
    kafka_offset bigint, main int, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE {s}.accounts (id int PRIMARY KEY, n int NOT NULL);
INSERT INTO {s}.accounts SELECT g, 0 FROM generate_series(0, 99) g;
CREATE TABLE {s}.parents (id int PRIMARY KEY);
CREATE TABLE {s}.children (id int REFERENCES {s}.parents DEFERRABLE INITIALLY DEFERRED);
"""
SMALL_DISK = 600
"""MiB."""


class Place:
    """Made once for a run; each episode has a topic, a schema and a prefix of its own."""

    def __init__(
        self, brokers: int, folder: Path, *, disk: int = SMALL_DISK, pooled: int = 0
    ) -> None:
        """`disk`: MiB of the small file system that the database lies on. `pooled`: so many
        connections to it are shared by all, transaction by transaction.
        """
        self.folder = folder
        self.disk = SmallDisk(folder / "database-disk", disk)
        self.temporary = SmallDisk(folder / "temporary", 32)
        try:
            self._start(brokers, pooled)
        except BaseException:  # else they stay mounted
            self._unmount()
            raise

    def _start(self, brokers: int, pooled: int) -> None:
        base = _ports()
        # Clients are sent to the gates; brokers talk to each other on a listener of their own.
        self.stack = run.own_stack("chaos", brokers=brokers, broker_properties={
            "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
                         f"INSIDE://127.0.0.1:{base + 1}{{node}}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{base}{{node}},"
                                    f"INSIDE://127.0.0.1:{base + 1}{{node}}",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map":
                "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        })  # fmt: skip
        self.brokers = brokers
        self.kafka_gates = [
            KafkaProxy("127.0.0.1", int(address.rpartition(":")[2]), base * 10 + node)
            for node, address in enumerate(self.stack.kafka.split(","), 1)
        ]
        self.kafka = ",".join(f"127.0.0.1:{gate.port}" for gate in self.kafka_gates)
        self.redis_port = urlsplit(self.stack.redis).port or 0
        self.redis_gate = Proxy("127.0.0.1", self.redis_port)
        self.redis_url = f"redis://127.0.0.1:{self.redis_gate.port}/0"
        self.database = self._make_database()
        self.pooler = Pooler(self.database, pooled) if pooled else None
        port = self.pooler.port if self.pooler else urlsplit(self.database).port or 0
        self.database_gate = Proxy("127.0.0.1", port)
        self.gated_database = _with_port(self.database, self.database_gate.port)

    @property
    def gates(self) -> list[Proxy]:
        return [*self.kafka_gates, self.redis_gate, self.database_gate]

    @property
    def services(self) -> dict[int, str]:
        """Which service each gate's port leads to."""
        kafka = {gate.port: "kafka" for gate in self.kafka_gates}
        return {**kafka, self.redis_gate.port: "valkey", self.database_gate.port: "postgres"}

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.stack.kafka, "log_level": 0})

    def query(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Past the gate, on a connection of its own."""
        with psycopg.connect(
            self.database, autocommit=True, connect_timeout=5, application_name="chaos"
        ) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def redis(self) -> redis.Redis:
        """Past the gate."""
        return redis.Redis(port=self.redis_port, socket_timeout=5)

    def prepare(self, name: str, partitions: int, results: str = "") -> None:
        """Topic, journal and tables of an episode; and a topic of results where it has one."""
        copies = min(3, self.brokers)
        any_time = {
            "message.timestamp.before.max.ms": str(2**63 - 1),
            "message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1",
        }  # fmt: skip
        topics = [
            NewTopic(one, partitions, copies, config=any_time) for one in (name, results) if one
        ]
        for made in self.admin.create_topics(topics).values():
            made.result(60)
        migrate(self.database, name)
        self.query(TABLES.format(s=name))

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)

    def mend(self) -> None:
        """Everything as it was, whatever a fault has left."""
        for gate in self.gates:
            gate.mend()
        self.disk.free()
        self.temporary.free()
        self.stack.heal()

    def close(self) -> None:
        for gate in self.gates:
            gate.mend()
            gate.cut()
        if self.pooler is not None:
            self.pooler.close()
        self.stack.down(delete=True)
        self._unmount()

    def _unmount(self) -> None:
        self.disk.close()
        self.temporary.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_database(self) -> str:
        """A database of the run's own, on the small disk where there is one."""
        where = ""
        with psycopg.connect(self.stack.database, autocommit=True) as server:
            if not enterable(self.disk.folder):
                self.disk.close()
            if self.disk.mounted:
                tables = self.disk.folder / "tables"
                tables.mkdir(exist_ok=True)
                if os.geteuid() == 0:
                    nobody = pwd.getpwnam("nobody").pw_uid
                    os.chown(tables, nobody, nobody)
                server.execute(f"CREATE TABLESPACE small LOCATION '{tables}'".encode())
                where = " TABLESPACE small"
            server.execute(f"CREATE DATABASE chaos{where}".encode())
        return urlsplit(self.stack.database)._replace(path="/chaos").geturl()


def _with_port(url: str, port: int) -> str:
    address = urlsplit(url)
    user = address.netloc.rpartition("@")[0]
    return address._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()


def _ports() -> int:
    """A number so that, with one digit added, it and the next one are free ports.

    Any such number: another run may be looking for its own.
    """
    bases = range(2300, 3190, 2)
    for base in random.sample(bases, len(bases)):
        if all(port_is_free(base * 10 + n) and port_is_free(base * 10 + 10 + n) for n in range(4)):
            return base
    raise AssertionError("no free ports")
