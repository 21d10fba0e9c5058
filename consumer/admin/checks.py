"""What `oncepool check` tries: Kafka and the app, beside `store_checks`. Each says what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import orjson

from consumer.admin.finding import Finding
from consumer.admin.kafka_admin import KafkaUnreachable, admin_client, metadata
from consumer.admin.other_apps import groups_beside
from consumer.admin.store_checks import check_database, check_redis, privileges_missing
from consumer.config.packages import hidden_package
from consumer.config.settings import Settings, variable
from consumer.intake.events import Assigned, Trouble
from consumer.intake.kafka import Kafka
from feedback.errors import OncepoolError
from feedback.metrics.exposition import available
from processing.cluster.other_groups import ADVICE, in_words
from processing.logs import get_logger

JOIN_TIMEOUT = 10.0

HANDLES = "oncepool check: "
LOAD = f"""
import json, os, sys
from processing.handlers.loading import load_app
from processing.handlers.start_failure import explain
from processing.worker.journal_uses import uses_of
try:
    app = load_app(sys.argv[1])
    app.start_worker()
except (Exception, SystemExit) as error:
    sys.exit(explain(error))
app.stop_worker()
print("\\n{HANDLES}" + json.dumps([sorted(app.handlers), uses_of(app)]), flush=True)
os._exit(0)
"""
"""What a worker does before it is ready; its last line on standard error says what is wrong.

One line on standard output, among those that an app may write there, says which types it handles,
and what of the journal it uses beside what all do.
Threads of the app and what it does at its exit are not waited for.
"""


def run_checks(settings: Settings) -> list[Finding]:
    """Looks at everything, also after something was found wrong."""
    findings: list[Finding] = []
    for name, needed, look in CHECKS:
        missing = [setting for setting in needed if getattr(settings, setting) in ("", [])]
        if missing:
            ways = ", ".join(f"{setting} ({variable(setting)})" for setting in missing)
            findings.append(Finding(name, "wrong", "not configured", f"set {ways}"))
            continue
        findings += look(settings)
    return findings


def check_kafka(settings: Settings) -> list[Finding]:
    """Brokers answer, and the topics are there."""
    advice = "correct kafka_properties"
    try:
        client = admin_client(settings)
        cluster = metadata(client, settings)
    except KafkaUnreachable as error:
        if not client.refusal:
            advice = "correct the address or start the broker"
        return [Finding("kafka", "wrong", str(error), advice)]
    except OncepoolError as error:
        return [Finding("kafka", "wrong", str(error), advice)]
    findings = [Finding("kafka", "ok", f"{len(cluster.brokers)} broker(s) answer")]
    for topic in settings.all_topics:
        if topic in cluster.topics:
            count = len(cluster.topics[topic].partitions)
            findings.append(Finding("kafka", "ok", f"topic {topic}: {count} partitions"))
        else:
            of_clients = "kafka_topic" if topic == settings.kafka_topic else "kafka_results_topic"
            name = "kafka_topics" if topic in settings.kafka_topics else of_clients
            advice = f"run `oncepool topics create`, or correct {name}"
            findings.append(Finding("kafka", "wrong", f"topic {topic} does not exist", advice))
    there = [topic for topic in settings.kafka_topics if topic in cluster.topics]
    if there and settings.kafka_protocol != "classic":
        findings.append(check_protocol(settings, there[0]))
    return findings


def check_protocol(settings: Settings, topic: str) -> Finding:
    """Whether the broker serves KIP-848: joins a group of its own, as nothing else tells."""
    changes = {
        "kafka_protocol": "auto",
        "kafka_group": f"{settings.kafka_group}-check-{uuid.uuid4().hex}",
        "kafka_topics": [topic],
    }
    try:
        kafka = Kafka(settings.model_copy(update=changes), get_logger("oncepool.check"))
    except OncepoolError as error:
        return Finding("kafka", "wrong", str(error), "correct kafka_properties")
    kafka.subscribe()
    end = time.monotonic() + JOIN_TIMEOUT
    trouble = f"no assignment within {JOIN_TIMEOUT:g} s"
    joined = False
    while not joined and kafka.protocol == "consumer" and time.monotonic() < end:
        for event in kafka.poll(1, 0.1):
            joined = joined or isinstance(event, Assigned)
            if isinstance(event, Trouble):
                trouble = event.detail
    kafka.close()
    if joined:
        return Finding("kafka", "ok", "the broker serves group.protocol=consumer (KIP-848)")
    if kafka.protocol == "consumer":
        advice = "look at the broker's log and the rights on consumer groups"
        return Finding("kafka", "warning", f"joining a group did not work: {trouble}", advice)
    detail = "the broker does not serve group.protocol=consumer (KIP-848)"
    if settings.kafka_protocol == "auto":
        return Finding("kafka", "ok", f"{detail}: classic with {settings.kafka_assignor} is used")
    advice = 'set kafka_protocol to "auto" or "classic", or turn it on in the broker'
    return Finding("kafka", "wrong", detail, advice)


def check_app(settings: Settings) -> list[Finding]:
    """A worker can start with the app: it imports, and its start hooks run, in a process."""
    if hidden := hidden_package(Path.cwd()):
        return [Finding("app", "wrong", hidden, "rename it")]
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOAD, settings.app],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=settings.worker_start_timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        seconds = settings.worker_start_timeout
        detail = (
            f"importing {settings.app} and running its start hooks took more than {seconds:g} s"
        )
        advice = "workers would be ended as well: make it quicker, or raise worker_start_timeout"
        return [Finding("app", "wrong", detail, advice)]
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        advice = "correct it"
        if len(lines) > 1:
            advice += f"; if importing raised it: python -c 'import {_module(settings)}' says where"
        return [Finding("app", "wrong", f"no worker could start: {lines[-1]}", advice)]
    for line in done.stdout.splitlines():
        if line.startswith(HANDLES):
            types, uses = orjson.loads(line.removeprefix(HANDLES))
            fits = Finding("app", "ok", f"{settings.app} handles {', '.join(types)}")
            return [fits, *privileges_missing(settings, uses), *_shared(settings, types)]
    detail = "no worker could start: the app ends the process, with exit code 0"
    return [Finding("app", "wrong", detail, "correct what ends it")]


def _shared(settings: Settings, types: list[str]) -> list[Finding]:
    """A warning where another group's instances would take waiting requests of these types."""
    if not (found := groups_beside(settings, types)):
        return []
    detail = (
        f"under the same redis_prefix {settings.redis_prefix} the same types are handled by"
        f" {in_words(found)}: waiting requests are taken by either"
    )
    return [Finding("app", "warning", detail, ADVICE)]


def check_health(settings: Settings) -> list[Finding]:
    """The health endpoints' port is free, where they are wanted."""
    if not settings.health_port:
        return []
    place = (settings.health_host, settings.health_port)
    family = socket.AF_INET6 if ":" in settings.health_host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            detail = f"{place[0]}:{place[1]} can't serve /livez and /readyz: {error.strerror}"
            advice = "set another health_port, unless an instance of this machine runs already"
            return [Finding("health", "warning", detail, advice)]
    metrics = "" if available() else "; no /metrics, as prometheus-client is not installed"
    return [Finding("health", "ok", f"{place[0]}:{place[1]} is free{metrics}")]


def _module(settings: Settings) -> str:
    return settings.app.partition(":")[0]


CHECKS: tuple[tuple[str, tuple[str, ...], Callable[[Settings], list[Finding]]], ...] = (
    ("kafka", ("kafka_bootstrap_servers", "kafka_topics"), check_kafka),
    ("database", ("database_url",), check_database),
    ("redis", ("redis_url",), check_redis),
    ("app", ("app",), check_app),
    ("health", (), check_health),
)
"""Name, settings without which it can't be tried, and the look itself."""
