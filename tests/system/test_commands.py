"""The commands as processes, on the real stack; exit codes are the process's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from stack import Stack
from tests.support.private_valkey import PrivateValkey

APP = """
from processing import App
app = App()

@app.handler("greeting.make", effect="none")
def greet(payload: dict):
    return {"text": "hello"}
"""

Done = subprocess.CompletedProcess[str]
Oncepool = Callable[..., Done]


@pytest.fixture
def environ(
    stack: Stack, topic: Callable[..., str], schema: str, prefix: str, group: str
) -> dict[str, str]:
    return {
        "ONCEPOOL_APP": "greetings:app",
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPICS": topic(),
        "ONCEPOOL_KAFKA_GROUP": group,
        "ONCEPOOL_DATABASE_URL": stack.database,
        "ONCEPOOL_DATABASE_SCHEMA": schema,
        "ONCEPOOL_REDIS_URL": stack.redis,
        "ONCEPOOL_REDIS_PREFIX": prefix,
    }


@pytest.fixture
def oncepool(tmp_path: Path, environ: dict[str, str]) -> Oncepool:
    (tmp_path / "greetings.py").write_text(APP)

    def run(*arguments: str, stdin: str | None = None, **changes: str) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "consumer", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environ, **changes},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def answer(done: Done) -> Any:
    assert done.stdout, done.stderr
    return orjson.loads(done.stdout)


def wrong(done: Done) -> dict[str, str]:
    """What a check found wrong: check -> detail and advice."""
    checks = answer(done)["checks"]
    return {c["check"]: f"{c['detail']}: {c['advice']}" for c in checks if c["state"] == "wrong"}


def test_check_finds_everything_well(oncepool: Oncepool) -> None:
    done = oncepool("check", "--json")

    assert done.returncode == 0, done.stdout
    found = " ".join(c["detail"] for c in answer(done)["checks"])
    assert "greeting.make" in found
    assert "KIP-848" in found
    assert {c["check"] for c in answer(done)["checks"]} == {"kafka", "database", "redis", "app"}


@pytest.mark.parametrize(
    "changes,check,message",
    [
        ({"ONCEPOOL_KAFKA_TOPICS": "nowhere"}, "kafka", "oncepool topics create"),
        ({"ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, "kafka", "no answer from 127.0.0.1"),
        ({"ONCEPOOL_KAFKA_PROPERTIES": '{"no.such": "x"}'}, "kafka", "No such configuration"),
        ({"ONCEPOOL_DATABASE_URL": "postgresql://u:hid@127.0.0.1:1/d"}, "database", "start Post"),
        ({"ONCEPOOL_DATABASE_SCHEMA": "nowhere"}, "database", "oncepool migrate"),
        ({"ONCEPOOL_REDIS_URL": "redis://:hid@127.0.0.1:1/0"}, "redis", "start Redis"),
        ({"ONCEPOOL_APP": "nothing:app"}, "app", "there is no module 'nothing'"),
        ({"ONCEPOOL_APP": "greetings:nothing"}, "app", "does not load"),
        ({"ONCEPOOL_APP": ""}, "app", "set app (ONCEPOOL_APP)"),
    ],
)
def test_check_names_what_is_wrong_and_what_to_do(
    oncepool: Oncepool, changes: dict[str, str], check: str, message: str
) -> None:
    done = oncepool("check", "--json", **changes)

    assert done.returncode == 1
    assert wrong(done).keys() == {check}
    assert message in wrong(done)[check]
    assert "hid" not in done.stdout + done.stderr


def test_check_warns_of_evicted_statuses(oncepool: Oncepool, tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    valkey = PrivateValkey(tmp_path / "valkey")
    try:
        with valkey.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        done = oncepool("check", "--json", ONCEPOOL_REDIS_URL=valkey.url)
    finally:
        valkey.stop()

    assert done.returncode == 0
    warnings = [c["detail"] for c in answer(done)["checks"] if c["state"] == "warning"]
    assert "maxmemory-policy is allkeys-lru" in warnings[0]


def test_migrate_twice(oncepool: Oncepool, stack: Stack, empty_schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"DROP SCHEMA IF EXISTS {empty_schema} CASCADE")

    first = oncepool("migrate", "--json", ONCEPOOL_DATABASE_SCHEMA=empty_schema)
    second = oncepool("migrate", "--json", ONCEPOOL_DATABASE_SCHEMA=empty_schema)

    assert answer(first)["applied"]
    assert answer(second)["applied"] == []
    assert (first.returncode, second.returncode) == (0, 0)


def test_migrate_without_a_database_is_a_message(oncepool: Oncepool) -> None:
    done = oncepool("migrate", ONCEPOOL_DATABASE_URL="postgresql://u:hid@127.0.0.1:1/d")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "hid" not in done.stderr


def test_topics_are_made_once(oncepool: Oncepool, group: str) -> None:
    names = f"{group}-a,{group}-b"
    arguments = ("topics", "create", "--json", "--topic-partitions", "3")

    first = oncepool(*arguments, ONCEPOOL_KAFKA_TOPICS=names)
    second = oncepool(*arguments, ONCEPOOL_KAFKA_TOPICS=names)

    assert [(t["result"], t["partitions"]) for t in answer(first)] == [("created", 3)] * 2
    assert [(t["result"], t["partitions"]) for t in answer(second)] == [("exists", 3)] * 2


def test_what_was_sent_is_accepted_and_waits(oncepool: Oncepool) -> None:
    sent = oncepool("send", "greeting.make", '{"n": 1}', "--id", "g-1", "--json")
    assert answer(sent) == {"id": "g-1"}

    found = answer(oncepool("status", "g-1", "--json"))
    assert [(s["id"], s["state"]) for s in found] == [("g-1", "accepted")]

    figures = answer(oncepool("stats", "--json"))
    assert [t["waiting"] for t in figures["topics"]] == [1]
    assert figures["instances"] == []


def test_an_unknown_request_is_exit_code_4(oncepool: Oncepool) -> None:
    oncepool("send", "greeting.make", "--id", "g-1")

    done = oncepool("status", "g-1", "g-2", "--json")

    assert done.returncode == 4
    assert [s["state"] for s in answer(done)] == ["accepted", "unknown"]


def test_no_answer_in_time_is_exit_code_5(oncepool: Oncepool) -> None:
    done = oncepool("send", "greeting.make", "--wait", "0.5", "--json")

    assert done.returncode == 5
    assert answer(done)["state"] == "accepted"
    assert "no answer in time" in done.stderr


def test_a_file_is_sent_line_by_line(oncepool: Oncepool) -> None:
    done = oncepool(
        "send", "greeting.make", "--file", "-", "--id", "b", "--json", stdin='{"n": 1}\n{"n": 2}\n'
    )

    assert [line["id"] for line in answer(done)] == ["b-1", "b-2"]
    assert oncepool("status", "b-1", "b-2").returncode == 0


def test_status_without_redis_asks_the_journal(oncepool: Oncepool) -> None:
    done = oncepool("status", "g-1", "--json", ONCEPOOL_REDIS_URL="redis://127.0.0.1:1/0")

    assert done.returncode == 4
    assert answer(done) == [{"id": "g-1", "state": "unknown"}]
