"""What a benchmark ran on, without which its figures say nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import psycopg
import redis

from stack import Stack
from stack.jars import KAFKA

PACKAGES = ("oncepool", "confluent-kafka", "psycopg", "redis", "hiredis", "orjson")
"""Whose versions bear on the figures of every benchmark."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, memory and versions. Nothing that names the machine."""

    date: str
    """When the run began, RFC 3339, UTC."""
    commit: str
    """Of the files that ran, with a + where they were changed; empty where nobody knows."""
    cores: int
    """CPUs that this process may use."""
    memory_gib: float
    load_before: float
    """Load average of the last minute: what others were doing when the run began."""
    system: str
    python: str
    services: dict[str, str]
    packages: dict[str, str]

    @property
    def line(self) -> str:
        """The facts in one line, for a table's caption."""
        services = ", ".join(f"{name} {number}" for name, number in self.services.items())
        return (
            f"{self.date[:10]}, {self.commit}, {self.cores} cores, {self.memory_gib:g} GiB, "
            f"load before {self.load_before:g}, {self.python}, {services}"
        )


def facts(stack: Stack, *packages: str) -> Machine:
    """This machine and the stack's services; `packages` are peers that the benchmark measures."""
    return Machine(
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        commit=_commit(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        load_before=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        services=_services(stack),
        packages={name: _version(name) for name in (*PACKAGES, *packages)},
    )


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        rev, changes = (
            subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return rev.strip() + "+" * any(" benchmarks/results/" not in c for c in changes.splitlines())


def _services(stack: Stack) -> dict[str, str]:
    with psycopg.connect(stack.database) as database:
        row = database.execute("SHOW server_version").fetchone()
    client = redis.Redis.from_url(stack.redis)
    info = client.info("server")
    client.close()
    found = {"PostgreSQL": row[0].split()[0] if row else "unknown"}
    if stack.brokers:
        # A broker that the environment names does not say its version.
        found["Kafka"] = f"{KAFKA.rpartition(':')[2]} ({stack.brokers} broker)"
    for field, name in (("valkey_version", "Valkey"), ("redis_version", "Redis")):
        if field in info:
            found[name] = info[field]
            break
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
