"""The commands on the real stack; `check`, and one of each exit code, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from confluent_kafka import KafkaException

from stack import Stack
from stack.places import free_port
from tests.support import topic_reader
from tests.support.commands import Commands
from tests.support.private_valkey import PrivateValkey
from tests.support.programs import started
from tests.support.waiting import eventually

WAIT = 60.0

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
def schema(pooled_schema: str) -> str:
    return pooled_schema


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
def oncepool(stack: Stack, environ: dict[str, str], schema: str, prefix: str) -> Oncepool:
    """A command in this process."""
    commands = Commands(stack, schema, prefix)

    def run(*arguments: str, stdin: str | None = None, **changes: str) -> Done:
        done = commands(*arguments, stdin=stdin, **{**environ, **changes})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(arguments, done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with an app."""
    (tmp_path / "greetings.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("greetings", None)


@pytest.fixture
def process(tmp_path: Path, environ: dict[str, str]) -> Oncepool:
    """A command as a process, in a folder with an app."""
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


def test_check_finds_everything_well(process: Oncepool) -> None:
    done = process("check", "--json")

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
        ({"ONCEPOOL_APP": "greetings:nothing"}, "app", "no worker could start"),
        ({"ONCEPOOL_APP": ""}, "app", "set app (ONCEPOOL_APP)"),
    ],
)
def test_check_names_what_is_wrong_and_what_to_do(
    folder: Path, oncepool: Oncepool, changes: dict[str, str], check: str, message: str
) -> None:
    done = oncepool("check", "--json", **changes)

    assert done.returncode == 1
    assert wrong(done).keys() == {check}
    assert message in wrong(done)[check]
    assert "hid" not in done.stdout + done.stderr


def test_check_warns_of_evicted_statuses(process: Oncepool, tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    valkey = PrivateValkey(tmp_path / "valkey")
    try:
        with valkey.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        done = process("check", "--json", ONCEPOOL_REDIS_URL=valkey.url)
    finally:
        valkey.stop()

    assert done.returncode == 0
    warnings = [c["detail"] for c in answer(done)["checks"] if c["state"] == "warning"]
    assert "maxmemory-policy is allkeys-lru" in warnings[0]


def test_check_refuses_a_cluster(process: Oncepool, tmp_path: Path) -> None:
    bus = str(free_port(set()))  # its own choice is 10,000 above the other, which may be none
    valkey = PrivateValkey(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus)
    try:
        with valkey.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: client.cluster("info")["cluster_state"] == "ok", 60)
        done = process("check", "--json", ONCEPOOL_REDIS_URL=valkey.url)
    finally:
        valkey.stop()

    assert done.returncode == 1
    assert "cluster mode" in wrong(done)["redis"]


def test_migrate_twice(oncepool: Oncepool, stack: Stack, empty_schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"DROP SCHEMA IF EXISTS {empty_schema} CASCADE")

    first = oncepool("migrate", "--json", ONCEPOOL_DATABASE_SCHEMA=empty_schema)
    second = oncepool("migrate", "--json", ONCEPOOL_DATABASE_SCHEMA=empty_schema)

    assert answer(first)["applied"]
    assert answer(second)["applied"] == []
    assert (first.returncode, second.returncode) == (0, 0)


def test_migrate_without_a_database_is_a_message(process: Oncepool) -> None:
    done = process("migrate", ONCEPOOL_DATABASE_URL="postgresql://u:hid@127.0.0.1:1/d")

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


def test_more_replicas_than_brokers_are_refused_with_what_to_change(
    oncepool: Oncepool, group: str
) -> None:
    arguments = ("topics", "create", "--topic-replication", "5")
    done = oncepool(*arguments, ONCEPOOL_KAFKA_TOPICS=f"{group}-a")
    assert done.returncode == 1
    assert "topic_replication is 5: it can be no more than there are brokers" in done.stderr


def test_the_topic_of_the_result_records_is_made_too(oncepool: Oncepool, group: str) -> None:
    done = oncepool(
        *("topics", "create", "--json", "--topic-partitions", "2"),
        ONCEPOOL_KAFKA_TOPICS=f"{group}-a",
        ONCEPOOL_KAFKA_RESULTS_TOPIC=f"{group}-results",
    )

    assert [(t["topic"], t["partitions"]) for t in answer(done)] == [
        (f"{group}-a", 2), (f"{group}-results", 2),
    ]  # fmt: skip


def test_the_topic_of_clients_is_made_too(oncepool: Oncepool, group: str) -> None:
    names = {"ONCEPOOL_KAFKA_TOPICS": f"{group}-a", "ONCEPOOL_KAFKA_TOPIC": f"{group}-b"}
    done = oncepool("topics", "create", "--json", **names)
    assert [t["topic"] for t in answer(done)] == [f"{group}-a", f"{group}-b"]
    alone = oncepool("topics", "create", "--json", ONCEPOOL_KAFKA_TOPIC=f"{group}-c")
    assert f"{group}-c" in [t["topic"] for t in answer(alone)]


def test_resuming_what_was_not_paused_says_so(oncepool: Oncepool) -> None:
    done = oncepool("limits", "resume", "never.paused")
    assert (done.returncode, "never.paused was not paused" in done.stderr) == (0, True)
    oncepool("limits", "pause", "greeting.make")
    assert "was not paused" not in oncepool("limits", "resume", "greeting.make").stderr


def test_what_was_sent_is_accepted_and_waits(oncepool: Oncepool) -> None:
    sent = oncepool("send", "greeting.make", '{"n": 1}', "--id", "g-1", "--json")
    assert answer(sent) == {"id": "g-1"}

    found = answer(oncepool("status", "g-1", "--json"))
    assert [(s["id"], s["state"]) for s in found] == [("g-1", "accepted")]

    done = oncepool("stats", "--json")
    figures = answer(done)
    assert "topics" in figures, done.stderr
    assert [t["waiting"] for t in figures["topics"]] == [1]
    assert figures["instances"] == []


def test_an_unknown_request_is_exit_code_4(process: Oncepool) -> None:
    process("send", "greeting.make", "--id", "g-1")

    done = process("status", "g-1", "g-2", "--json")

    assert done.returncode == 4
    assert [s["state"] for s in answer(done)] == ["accepted", "unknown"]


def test_no_answer_in_time_is_exit_code_5(process: Oncepool) -> None:
    done = process("send", "greeting.make", "--wait", "0.001", "--json")

    assert done.returncode == 5
    assert answer(done)["state"] == "accepted", "it was confirmed before the command ended"
    assert "no answer in time" in done.stderr


@pytest.mark.parametrize("lines", ["", "{}\n{}\n"], ids=["one", "lines"])
def test_ctrl_c_names_what_was_sent(
    environ: dict[str, str], stack: Stack, tmp_path: Path, lines: str
) -> None:
    """It runs, and under another id it would run once more."""
    (tmp_path / "lines").write_text(lines)
    file = ["--file", str(tmp_path / "lines")] if lines else []
    command = ["send", "greeting.make", *file, "--wait", str(WAIT)]

    def arrived() -> list[str]:
        with suppress(KafkaException):  # a topic that was just made is not known to all at once
            return topic_reader.ids(stack, environ["ONCEPOOL_KAFKA_TOPICS"])
        return []

    process = started(
        "consumer", *command, environment=environ, log=tmp_path / "log", stdout=subprocess.PIPE
    )
    with process:
        try:
            number = max(1, lines.count("\n"))
            eventually(lambda: len(arrived()) == number, WAIT)
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=WAIT)
        finally:
            process.kill()

    assert (process.returncode, told.decode().split()) == (130, arrived())
    sent = "1 request" if number == 1 else f"{number} requests"
    assert f"interrupted; {sent} may be sent by now" in (tmp_path / "log").read_text()


def test_an_answer_that_nobody_could_read_is_said_to_be_that(oncepool: Oncepool) -> None:
    away = "redis://127.0.0.1:1/0"
    done = oncepool("send", "greeting.make", "--wait", "0.5", ONCEPOOL_REDIS_URL=away)

    assert done.returncode == 5
    assert "no answer in time: Redis is not available" in done.stderr
    assert "`oncepool status` asks the journal" in done.stderr


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
    assert done.stderr.count("warning: Redis is not available") == 1, "unknown to the journal alone"


def test_what_postgresql_refuses_is_told_in_one_line(oncepool: Oncepool) -> None:
    done = oncepool("migrate", ONCEPOOL_DATABASE_SCHEMA="pg_mine")

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "unacceptable schema name" in line
    assert "reserved for system schemas" in line


# Rows of the journal


ROWS = """
INSERT INTO {schema}.requests (id, type, state, code, attempt, run, effect, key, reference, error,
                               payload, result, topic, partition, kafka_offset, produced_at,
                               created_at, finished_at)
VALUES ('old', 'a', 'done', 'ok', 1, 1, 'transaction', 'k-1', NULL, NULL,
        NULL, '{{"n": 1}}', 't', 0, 1, now(), now() - interval '3 days', now() - interval '3 days'),
       ('failed', 'a', 'failed', 'handler_error', 1, 2, 'transaction', 'k-2', 'ref', 'ValueError',
        '\\x00ff', NULL, 't', 0, 2, now(), now() - interval '2 minutes', now()),
       ('doubt', 'b', 'in_doubt', 'worker_died', 1, 1, 'external', 'k-2', NULL, NULL,
        '{{}}', NULL, 't', 0, 3, now(), now() - interval '1 minute', now())
"""
ATTEMPT = """
INSERT INTO {schema}.attempts (request_id, run, code, error, started_at, ended_at)
VALUES ('failed', 1, 'timeout', 'took too long', now(), now())
"""
COUNTERS = """
INSERT INTO {schema}.counters (minute, type, state, code, n)
VALUES (date_trunc('minute', now()), 'a', 'done', 'ok', 5),
       (date_trunc('minute', now() - interval '2 hours'), 'a', 'done', 'ok', 100)
"""


@pytest.fixture
def rows(stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as database:
        for statement in (ROWS, ATTEMPT, COUNTERS):
            database.execute(statement.format(schema=schema))


@pytest.mark.parametrize(
    "arguments,ids",
    [
        ((), ["doubt", "failed", "old"]),
        (("--state", "done"), ["old"]),
        (("--type", "a"), ["failed", "old"]),
        (("--since", "1h"), ["doubt", "failed"]),
        (("--key", "k-2"), ["doubt", "failed"]),
        (("--key", "k-2", "--type", "b"), ["doubt"]),
        (("--reference", "ref"), ["failed"]),
    ],
)
def test_requests_are_listed(
    oncepool: Oncepool, rows: None, arguments: tuple[str, ...], ids: list[str]
) -> None:
    done = oncepool("requests", "list", "--json", *arguments)

    assert [row["id"] for row in answer(done)] == ids
    assert done.returncode == 0


def test_a_listing_says_when_there_is_more(oncepool: Oncepool, rows: None) -> None:
    done = oncepool("requests", "list", "--json", "--limit", "2")

    assert [row["id"] for row in answer(done)] == ["doubt", "failed"]
    assert "there are more than these 2" in done.stderr
    assert "more" not in oncepool("requests", "list", "--limit", "3").stderr


def test_rows_have_the_names_of_the_columns(oncepool: Oncepool, rows: None) -> None:
    (row,) = answer(oncepool("requests", "list", "--json", "--reference", "ref"))

    contract = "id type state code attempt run fingerprint result error reason key reference"
    contract += " superseded_by not_before resends topic partition kafka_offset created_at"
    assert set(contract.split()) <= row.keys()
    assert (row["key"], row["run"], row["error"]) == ("k-2", 2, "ValueError")


def test_a_fingerprint_is_hex_in_rows_as_in_statuses(
    oncepool: Oncepool, stack: Stack, schema: str, rows: None
) -> None:
    mark = "00ff41424344454647484950515253aa"
    with psycopg.connect(stack.database, autocommit=True) as database:
        set_mark = f"UPDATE {schema}.requests SET fingerprint = decode('{mark}', 'hex')"
        database.execute(f"{set_mark} WHERE id = 'old'".encode())
    (listed,) = answer(oncepool("requests", "list", "--state", "done", "--json"))
    (shown,) = answer(oncepool("requests", "show", "old", "--json"))
    (status,) = answer(oncepool("status", "old", "--json"))

    assert listed["fingerprint"] == shown["fingerprint"] == status["fingerprint"] == mark


def test_a_request_is_shown_with_its_failed_runs(oncepool: Oncepool, rows: None) -> None:
    (row,) = answer(oncepool("requests", "show", "failed", "--json"))

    assert [a["code"] for a in row["attempts"]] == ["timeout"]
    assert row["payload"] == "AP8=", "what is not UTF-8 is base64"
    assert "took too long" in oncepool("requests", "show", "failed").stdout


def test_showing_an_unknown_request_is_exit_code_4(oncepool: Oncepool, rows: None) -> None:
    done = oncepool("requests", "show", "old", "nowhere", "--json")

    assert done.returncode == 4
    assert [row["id"] for row in answer(done)] == ["old"]
    assert "nowhere" in done.stderr


def test_status_takes_the_journals_word(oncepool: Oncepool, rows: None) -> None:
    found = answer(oncepool("status", "old", "doubt", "--json"))

    assert [(s["id"], s["state"], s.get("result")) for s in found] == [
        ("old", "done", {"n": 1}),
        ("doubt", "in_doubt", None),
    ]


def test_status_asks_the_journal_for_what_an_operator_may_have_moved(
    oncepool: Oncepool, rows: None
) -> None:
    away = "redis://127.0.0.1:1/0"
    assert oncepool("requests", "resolve", "doubt", "--as", "failed").returncode == 0
    assert oncepool("requests", "retry", "doubt", ONCEPOOL_REDIS_URL=away).returncode == 0

    (status,) = answer(oncepool("status", "doubt", "--json"))
    assert (status["state"], status["code"]) == ("waiting", "retried"), "Redis still says failed"

    nowhere = "postgresql://127.0.0.1:1/nowhere"
    done = oncepool("status", "doubt", "--json", ONCEPOOL_DATABASE_URL=nowhere)
    assert (done.returncode, answer(done)[0]["state"]) == (0, "failed")
    assert "this is what Redis says" in done.stderr


def test_stats_count_the_last_minutes(oncepool: Oncepool, rows: None) -> None:
    (count,) = answer(oncepool("stats", "--json"))["requests"]
    assert (count["type"], count["state"], count["n"]) == ("a", "done", 5)

    (count,) = answer(oncepool("stats", "--json", "--minutes", "180"))["requests"]
    assert count["n"] == 105


def test_stats_show_what_answers(oncepool: Oncepool, rows: None) -> None:
    done = oncepool("stats", ONCEPOOL_REDIS_URL="redis://:hid@127.0.0.1:1/0")

    assert done.returncode == 0
    assert "instances: " in done.stdout
    assert "done" in done.stdout
    assert "hid" not in done.stdout + done.stderr


def test_wrong_filters_are_wrong_usage(oncepool: Oncepool) -> None:
    assert oncepool("requests", "list", "--state", "lost").returncode == 2
    done = oncepool("requests", "list", "--since", "yesterday")
    assert done.returncode == 2
    assert "--since: 'yesterday'" in done.stderr
