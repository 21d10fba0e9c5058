"""The stack on real services: started, found, broken, healed, taken down."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack import NotOurs, ServiceFailed, Stack, StackError, find, processes, up
from stack.external import VARIABLES, given
from stack.kafka import Broker
from stack.plan import new_cluster, new_nodes
from stack.service import Tell
from stack.storage import META
from stack.valkey import Valkey
from tests.support import eventually, run

pytestmark = [pytest.mark.timeout(180), pytest.mark.long]


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder for one stack, of which nothing is left after the test."""
    folder = run.folder() / f"data-{time.monotonic_ns()}"
    yield folder
    stack = find(folder, stopped=True)
    if stack is not None:
        stack.down(delete=True)


@pytest.fixture
def without_kafka(own_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is given, so that an `up` starts PostgreSQL and Valkey only, which are quicker."""
    monkeypatch.setenv(VARIABLES["kafka"], own_stack.kafka)


def pids(stack: Stack) -> set[int]:
    return {process.pid for process in processes.processes_in(stack.data)}


def write(stack: Stack, text: str) -> None:
    """Leaves a mark in all three services."""
    producer = Producer({"bootstrap.servers": stack.kafka, "acks": "all"})
    producer.produce("marks", text.encode())
    assert producer.flush(30) == 0
    with psycopg.connect(stack.database) as database:
        database.execute("CREATE TABLE IF NOT EXISTS marks (mark text)")
        database.execute("INSERT INTO marks VALUES (%s)", [text])
    with redis.Redis.from_url(stack.redis) as valkey:
        valkey.set("mark", text)


def make_topic(stack: Stack, copies: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic("marks", 1, copies)])["marks"].result(30)


def marks(stack: Stack) -> tuple[list[str], list[str]]:
    """The marks in Kafka and in PostgreSQL."""
    consumer = Consumer(
        {"bootstrap.servers": stack.kafka, "group.id": "none", "enable.partition.eof": "true"}
    )
    consumer.assign([TopicPartition("marks", 0, 0)])
    found: list[str] = []
    at_end = False
    while not at_end:
        message = consumer.poll(30)
        assert message is not None
        # Errors of connections to a broker that just came back are followed by what was asked for.
        error = message.error()
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is None:
            found.append((message.value() or b"").decode())
    consumer.close()
    with psycopg.connect(stack.database) as database:
        return found, [row[0] for row in database.execute("SELECT mark FROM marks")]


def test_a_second_up_finds_the_first(own_stack: Stack) -> None:
    before = pids(own_stack)
    again = up(own_stack.data)
    assert (again.kafka, again.database, again.redis) == (
        own_stack.kafka,
        own_stack.database,
        own_stack.redis,
    )
    # Children of its database come and go by themselves.
    eventually(lambda: pids(again) == before)


def test_brokers_start_with_their_classes_loaded_ahead(own_stack: Stack) -> None:
    pid = int((own_stack.data / "kafka-1.pid").read_text())
    assert any(a.startswith("-XX:AOTCache=") for a in psutil.Process(pid).cmdline())
    # It says so where it cannot use the file.
    assert "[aot]" not in (own_stack.data / "kafka-1.log").read_text()


def test_brokers_are_formatted_from_what_an_earlier_one_kept(own_stack: Stack, data: Path) -> None:
    nodes = new_nodes(1, set())
    first = Broker(1, nodes, data, new_cluster(), {})
    try:
        for broker in (first, Broker(1, nodes, data, first._cluster, {})):  # and it comes back so
            broker.start(lambda _doing: None)
            broker.stop()
        assert "Formatting" not in first.log.read_text()
    finally:
        first.stop()
    meta = (own_stack.data / "kafka-1" / "data" / META).read_text()
    mine = (first.folder / "data" / META).read_text()
    ids = [
        re.findall(r"^(?:cluster|directory)\.id=(.{22})$", one, re.MULTILINE)
        for one in (meta, mine)
    ]
    assert len({*ids[0], *ids[1]}) == 4


def test_a_broker_never_leaves_the_folder_that_it_is_known_by(own_stack: Stack) -> None:
    """A JVM that keeps its counters in a file does, while it starts, and seems to have ended."""
    pid = int((own_stack.data / "kafka-1.pid").read_text())
    assert list(Path("/tmp").glob(f"hsperfdata_*/{pid}")) == []


def test_up_refuses_what_does_not_go_with_the_running_stack(own_stack: Stack) -> None:
    with pytest.raises(StackError, match=r"with 1 broker\(s\), not 3.*down --delete"):
        up(own_stack.data, 3)
    with pytest.raises(StackError, match="other broker properties"):
        up(own_stack.data, broker_properties={"log.retention.ms": "1"})
    with pytest.raises(StackError, match="1 or 3 brokers, not 2"):
        up(own_stack.data, 2)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("service", ["database", "redis", "broker"])
def test_a_service_comes_back_on_its_port(own_stack: Stack, service: str, kill: bool) -> None:
    addresses = (own_stack.kafka, own_stack.database, own_stack.redis)
    getattr(own_stack, f"stop_{service}")(kill=kill)
    states = [s.state for s in own_stack.status()]
    assert states.count("stopped") == 1
    # Another object, as another process would have it, sees the same.
    found = find(own_stack.data)
    assert found is not None
    assert [s.state for s in found.status()] == states
    getattr(found, f"start_{service}")()
    assert {s.state for s in own_stack.status()} == {"running"}
    assert (found.kafka, found.database, found.redis) == addresses


def test_a_paused_database_keeps_connections_and_answers_nothing(own_stack: Stack) -> None:
    with psycopg.connect(own_stack.database, autocommit=True) as database:
        own_stack.pause_database()
        answered = threading.Event()

        def ask() -> None:
            database.execute("SELECT 1")
            answered.set()

        asking = threading.Thread(target=ask)
        asking.start()
        assert not answered.wait(0.3)
        own_stack.resume_database()
        assert answered.wait(60)
        asking.join()


def test_a_paused_redis_times_out(own_stack: Stack) -> None:
    own_stack.pause_redis()
    with redis.Redis.from_url(own_stack.redis, socket_timeout=0.2, retry=None) as valkey:
        with pytest.raises(redis.TimeoutError):
            valkey.ping()
        own_stack.resume_redis()
        assert eventually(valkey.ping)


def test_a_paused_broker_delivers_after_it_goes_on(own_stack: Stack) -> None:
    make_topic(own_stack)
    producer = Producer({"bootstrap.servers": own_stack.kafka})
    own_stack.pause_broker()
    producer.produce("marks", b"1")
    assert producer.flush(0.5) == 1
    own_stack.resume_broker()
    assert producer.flush(30) == 0


def test_heal_makes_everything_whole(own_stack: Stack) -> None:
    own_stack.stop_database(kill=True)
    own_stack.pause_redis()
    own_stack.heal()
    assert {s.state for s in own_stack.status()} == {"running"}


def test_given_addresses_come_first_and_are_left_alone(
    own_stack: Stack, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [own_stack.kafka, own_stack.database, own_stack.redis]
    for variable, address in zip(VARIABLES.values(), addresses, strict=True):
        monkeypatch.setenv(variable, address)
    stack = up(data)
    assert [stack.kafka, stack.database, stack.redis] == addresses
    assert {s.state for s in stack.status()} == {"external"}
    with pytest.raises(NotOurs, match="given by the environment"):
        stack.stop_redis()
    stack.down(delete=True)
    assert not data.exists()
    # Its own they are where its folder is meant, also by another name.
    for variable, address in zip(VARIABLES.values(), addresses, strict=True):
        monkeypatch.setenv(variable, address.replace("127.0.0.1", "localhost"))
    again = up(own_stack.data)
    assert [again.kafka, again.database, again.redis] == addresses
    assert {s.state for s in own_stack.status()} == {s.state for s in again.status()} == {"running"}


def test_a_port_that_others_take_at_the_last_moment_is_given_up(
    own_stack: Stack, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES["kafka"], own_stack.kafka)
    monkeypatch.setenv(VARIABLES["database"], own_stack.database)
    with contextlib.ExitStack() as others:
        taken: list[int] = []
        launch = Valkey.launch

        def launch_too_late(self: Valkey, tell: Tell) -> bool:
            if not taken:
                taken.append(self.port)
                others.enter_context(socket.create_server(("127.0.0.1", self.port)))
            return launch(self, tell)

        monkeypatch.setattr(Valkey, "launch", launch_too_late)
        stack = up(data)
        assert urlsplit(stack.redis).port not in taken
        with redis.Redis.from_url(stack.redis) as valkey:
            assert valkey.ping()
        stack.down(delete=True)


def test_a_given_address_where_nobody_answers_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEPOOL_REDIS_URL", "redis://127.0.0.1:1/0")
    with pytest.raises(StackError, match="nothing answers at the address in ONCEPOOL_REDIS_URL"):
        up(data)
    assert not data.exists()


def test_data_outlives_down_and_a_killed_stack_is_taken_up_again(data: Path) -> None:
    stack = up(data)
    make_topic(stack)
    write(stack, "one")
    stack.down()
    assert pids(stack) == set()
    assert find(data) is None

    stack = up(data)
    write(stack, "two")
    # All at once, its children held: a later up meets pid files and processes that mean nothing.
    for process in processes.processes_in(data):
        process.send_signal(signal.SIGSTOP if process.parent() is None else signal.SIGKILL)
    addresses = (stack.kafka, stack.database, stack.redis)
    stack = up(data)
    assert (stack.kafka, stack.database, stack.redis) == addresses
    assert marks(stack) == (["one", "two"], ["one", "two"])

    stack.down(delete=True)
    assert pids(stack) == set()
    assert not data.exists()


@pytest.mark.parametrize("harm", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.usefixtures("without_kafka")
def test_nothing_is_left_after_down(data: Path, harm: signal.Signals) -> None:
    stack = up(data)
    # A backend at work, and only the servers' first processes hit: their children live on.
    database = psycopg.connect(stack.database)
    database.execute("CREATE TABLE t ()")
    for name in ("postgres", "valkey"):
        os.kill(int((data / f"{name}.pid").read_text()), harm)
    stack.down()
    database.close()
    assert processes.processes_in(data) == []
    assert find(data) is None


@pytest.mark.usefixtures("without_kafka")
def test_a_database_that_cannot_start_shows_its_log(data: Path) -> None:
    up(data).down()
    control = next(data.glob("postgres/global/pg_control"))
    control.write_bytes(b"broken")
    with pytest.raises(ServiceFailed, match="postgres did not come up") as e:
        up(data)
    assert any("pg_control" in line for line in e.value.lines)


def test_an_interrupted_up_leaves_nothing(data: Path) -> None:
    def interrupt(progress: tuple[str, str]) -> None:
        if progress[0] == "kafka-1" and progress[1] == "starting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        up(data, watch=interrupt)
    assert processes.processes_in(data) == []


@pytest.mark.usefixtures("without_kafka")
def test_two_at_once_make_one_stack(data: Path) -> None:
    found: list[Stack] = []
    threads = [threading.Thread(target=lambda: found.append(up(data))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(s.kafka, s.database, s.redis) for s in found}) == 1
    assert len([p for p in processes.processes_in(data) if p.name() == "valkey-server"]) == 1


@pytest.mark.usefixtures("without_kafka")
def test_taken_ports_are_left_to_those_who_took_them(data: Path) -> None:
    import socket

    stack = up(data)
    stack.down()
    port = int(stack.redis.split(":")[-1].split("/")[0])
    with socket.create_server(("127.0.0.1", port)):
        again = up(data)
        assert again.redis != stack.redis
        assert again.database == stack.database


@pytest.mark.usefixtures("without_kafka")
def test_the_stack_goes_with_its_owner(data: Path) -> None:
    program = (
        "import os, sys, stack, time; from pathlib import Path\n"
        "stack.up(Path(sys.argv[1]), owner=os.getpid(), disposable=True)\n"
        "print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert processes.processes_in(data)
        owner.kill()
    eventually(lambda: not data.exists())
    assert processes.processes_in(data) == []
    eventually(lambda: not [p for p in psutil.process_iter() if _is_keeper(p, data)])


def _is_keeper(process: psutil.Process, data: Path) -> bool:
    try:
        return str(data) in process.cmdline()
    except psutil.Error:
        return False


def test_the_commands(data: Path, tmp_path: Path) -> None:
    """And `eval "$(oncepool stack up)"`, after which whatever comes in the same shell."""
    shell = dict(os.environ)

    def oncepool(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "consumer", "stack", *arguments, "--data", str(data)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=shell
        )

    def evaluate() -> list[str]:
        done = oncepool("up")
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            shell[name] = shlex.split(value)[0]
        return done.stdout.splitlines()

    def states() -> set[str]:
        services = json.loads(oncepool("status", "--json").stdout)["services"]
        return {service["state"] for service in services}

    failed = oncepool("up", "--broker-property", "log.retention.ms=soon")
    assert failed.returncode == 1
    assert "oncepool: kafka-1 did not come up" in failed.stderr
    assert "Invalid value soon for configuration log.retention.ms" in failed.stderr
    assert "Traceback" not in failed.stderr
    # What came up meanwhile went down with it, and the next up is not bound to the mistake.
    assert processes.processes_in(data) == []
    started = oncepool("up", "--json")
    assert started.returncode == 0, started.stderr
    assert "kafka-1: ready" in started.stderr
    addresses = json.loads(started.stdout.splitlines()[-1])
    assert list(addresses) == ["kafka", "database", "redis"]
    # The command has ended, the services serve.
    with psycopg.connect(addresses["database"]) as database:
        database.execute("SELECT 1")
    shown = json.loads(oncepool("status", "--json").stdout)
    assert shown["running"] is True
    assert shown["kafka"] == addresses["kafka"]
    assert {s["state"] for s in shown["services"]} == {"running"}
    assert f"export ONCEPOOL_REDIS_URL={addresses['redis']}" in evaluate()
    assert "postgres   running" in oncepool("status").stdout

    # From here on with what it exported, which stands in the way of no later command.
    evaluate()  # it is up already
    assert states() == {"running"}
    assert oncepool("down", "--json").stdout == '{"ended": true}\n'
    assert json.loads(oncepool("status", "--json").stdout)["running"] is False
    assert oncepool("down", "--delete").returncode == 0
    assert not data.exists()
    assert processes.processes_in(data) == []
    assert given(tmp_path / "another", shell) == {}
    evaluate()  # with other ports and another password
    assert states() == {"running"}
    assert set(given(tmp_path / "another", shell)) == set(VARIABLES)
    assert oncepool("down", "--delete", "--json").stdout == '{"ended": true}\n'
    assert not data.exists()
    assert processes.processes_in(data) == []
    assert oncepool("down").returncode == 0

    assert "NAME=VALUE" in oncepool("up", "--broker-property", "x").stderr


def test_three_brokers_serve_without_one_of_them(data: Path) -> None:
    stack = up(data, 3)
    assert len(stack.kafka.split(",")) == 3
    make_topic(stack, copies=3)
    write(stack, "three")
    stack.stop_broker(2, kill=True)
    write(stack, "two")
    stack.start_broker(2)
    assert marks(stack)[0] == ["three", "two"]
    with pytest.raises(StackError, match="no broker 4: this stack has 3"):
        stack.stop_broker(4)
