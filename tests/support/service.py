"""The whole service as real processes, and what a producer and the database see of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from consumer.admin.lag import group_lag
from consumer.config.settings import Settings
from feedback import Client, DeliveryFailed, Status, StoreUnavailable
from feedback.journal.migrations import migrate
from processing.cluster.instances import instances
from stack import Stack
from tests.support.programs import started
from tests.support.queries import Queries
from tests.support.waiting import eventually

APP = "tests.support.hostile_app:app"
WAIT = 90.0


class Instance:
    """One consumer process."""

    def __init__(
        self, environment: dict[str, str], log: Path, *, program: str = "consumer"
    ) -> None:
        """`program`: the module that it is, where it is not the product's."""
        self._log = log
        app = environment.get("ONCEPOOL_APP", APP)
        self.process = started(program, "run", app, environment=environment, log=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, line: str, count: int = 1, timeout: float = WAIT) -> None:
        """Waits until the log has so many lines with this text."""
        eventually(lambda: self.log.count(line) >= count, timeout, lambda: f"{line}\n{self.log}")

    def running(self) -> None:
        self.says("partitions assigned")

    def workers(self) -> list[int]:
        """Pids of its worker processes."""
        return self._children(b"processing.worker")

    def children(self) -> list[int]:
        """Pids of its worker processes and its maintenance process."""
        return self._children(b"processing.")

    def _children(self, program: bytes) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if parent == self.process.pid and program in command:
                    found.append(int(entry.name))
        return found

    def health(self, path: str) -> tuple[int, dict[str, bool]]:
        """Status of /livez or /readyz, and what it lists as well or not.

        An AssertionError, which `eventually` waits out, where nobody answers.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=30)
        with contextlib.closing(connection):
            try:
                connection.request("GET", f"{path}?verbose", headers={"accept": "application/json"})
                answer = connection.getresponse()
                checks = json.loads(answer.read())["checks"]
            except (OSError, http.client.HTTPException) as error:
                raise AssertionError(f"no answer of {path}: {error}") from error
        return answer.status, {check["name"]: check["ok"] for check in checks}

    @property
    def health_port(self) -> int:
        [port] = re.findall(r"health endpoints.* port=(\d+)", self.log)[-1:]
        return int(port)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT)

    def close(self) -> None:
        if self.alive:
            self.kill()


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1][:1]
    except OSError:
        return False
    return state != b"Z"


class Bench:
    """A topic, a schema, a client, and as many instances as a test starts."""

    def __init__(
        self,
        stack: Stack,
        topic: str,
        schema: str,
        prefix: str,
        group: str,
        tmp: Path,
        *,
        database: str | None = None,
    ) -> None:
        """`database`: its URL, where it is not the stack's."""
        self.stack, self.topic, self.schema, self.group = stack, topic, schema, group
        self.database = stack.database if database is None else database
        self._tmp = tmp
        self.environment = {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": topic,
            "ONCEPOOL_KAFKA_GROUP": group,
            "ONCEPOOL_DATABASE_URL": self.database,
            "ONCEPOOL_DATABASE_SCHEMA": schema,
            "ONCEPOOL_REDIS_URL": stack.redis,
            "ONCEPOOL_REDIS_PREFIX": prefix,
            "ONCEPOOL_WORKERS": "2",
            "ONCEPOOL_HEALTH_PORT": "0",
            "ONCEPOOL_LOG_FORMAT": "console",
        }
        self.instances: list[Instance] = []
        self.client = Client(kafka=stack.kafka, redis=stack.redis, topic=topic, prefix=prefix)
        self.table = f"{schema}.effects"
        self.query = Queries(self.database)
        self.query(f"CREATE TABLE {self.table} (id text)")

    def start(self, *, wait: bool = True, program: str = "consumer", **more: str) -> Instance:
        log = self._tmp / f"consumer-{len(self.instances)}.log"
        instance = Instance({**self.environment, **more}, log, program=program)
        self.instances.append(instance)
        if wait:
            instance.running()
        return instance

    def status(self, request: str) -> Status | None:
        """As its producer reads it, who asks again where Redis takes long."""
        return self.statuses([request])[0]

    def statuses(self, requests: list[str]) -> list[Status | None]:
        """The same of several."""

        def read() -> list[Status | None]:
            try:
                return self.client.statuses(requests)
            except StoreUnavailable as error:
                raise AssertionError(str(error)) from error

        return eventually(read, WAIT)

    def seen(self, request: str) -> tuple[str, str]:
        """State and code that its producer reads once it was looked at: also `waiting`."""
        statuses: list[Status] = []

        def looked_at() -> bool:
            status = self.status(request)
            if status is None or status.state in ("accepted", "running"):
                return False
            statuses.append(status)
            return True

        eventually(looked_at, WAIT)
        return str(statuses[-1].state), statuses[-1].code

    def outcome(self, kind: str, payload: Any = None, **options: Any) -> Status:
        request = self.client.submit(kind, {} if payload is None else payload, **options)
        return self.client.wait(request, WAIT)

    def facts(self) -> list[dict[str, Any]]:
        """What each instance that is registered in Redis says of itself, once its main process has
        said something."""
        prefix = self.environment["ONCEPOOL_REDIS_PREFIX"]
        with redis.Redis.from_url(self.environment["ONCEPOOL_REDIS_URL"]) as client:
            return [told for told in instances(client, prefix) if "workers" in told]

    def shared_out(self, members: int, partitions: int) -> None:
        """Waits until so many instances have all partitions among them, and each has some."""

        def assigned() -> bool:
            here = (told for told in self.facts() if not told.get("stopping"))
            each = [int(told.get("assigned", 0)) for told in here]
            return sum(n > 0 for n in each) >= members and sum(each) == partitions

        eventually(assigned, WAIT, lambda: str(self.facts()))

    def said(self) -> dict[str, Any]:
        """The first one's; an AssertionError, which `eventually` waits out, before there is one."""
        found = self.facts()
        assert found, "no instance has said anything of itself yet"
        return found[0]

    def waiting(self) -> int:
        """Messages that the group has not committed."""
        settings: dict[str, Any] = {
            "kafka_bootstrap_servers": self.stack.kafka,
            "kafka_topics": [self.topic],
            "kafka_group": self.group,
        }
        return sum(lag.waiting for lag in group_lag(Settings(**settings)))

    def charging(self, file: Path, seconds: float, kind: str = "charges", **more: str) -> str:
        """An external request whose effect has just happened and whose handler still runs."""
        payload = {"file": str(file), "seconds": seconds, **more}
        request = self.client.submit(kind, payload)
        eventually(lambda: file.exists() and file.read_text(), WAIT, lambda: self.instances[-1].log)
        return request

    def expire_lease(self) -> None:
        """As if the time of every claim had passed."""
        self.query(
            f"UPDATE {self.schema}.requests SET lease_until = now() - interval '1 s'"
            " WHERE state = 'running'"
        )

    def states(self) -> dict[str, int]:
        """Rows of the journal by state."""
        rows = self.query(f"SELECT state, count(*) FROM {self.schema}.requests GROUP BY 1")
        return {str(state): int(count) for state, count in rows}

    def done(self) -> int:
        return self.states().get("done", 0)

    def check_books(self, expected: set[str]) -> None:
        """Each of these ids, and no other, has one effect and one row that says so."""
        effects = [row[0] for row in self.query(f"SELECT id FROM {self.table}")]
        rows = self.query(f"SELECT id FROM {self.schema}.requests WHERE state = 'done'")
        done = {row[0] for row in rows}
        assert len(effects) == len(set(effects)), "an effect happened twice"
        assert set(effects) == done, "the journal and the effects differ"
        assert done == expected

    def close(self) -> None:
        for instance in self.instances:
            instance.close()
        self.client.close()
        self.query.close()


class Raw:
    """Sends what the client would not."""

    def __init__(self, bench: Bench) -> None:
        self._topic = bench.topic
        self._producer = Producer({"bootstrap.servers": bench.stack.kafka})

    def send(self, key: str | None, headers: dict[str, bytes | None], value: bytes | None) -> None:
        """Sends one message and waits until it is there."""
        self._producer.produce(self._topic, value, key, headers=list(headers.items()))
        assert self._producer.flush(30) == 0


@contextlib.contextmanager
def bench_on(stack: Stack, tmp: Path) -> Iterator[Bench]:
    """A bench on a stack that the test may break; the stack is whole again afterwards."""
    name = uuid.uuid4().hex[:12]
    topic, schema = f"test-{name}", f"test_{name}"
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(topic, num_partitions=4)])[topic].result(30)
    migrate(stack.database, schema)
    bench = Bench(stack, topic, schema, f"prefix-{name}", f"group-{name}", tmp)
    try:
        yield bench
    finally:
        stack.heal()
        bench.close()
        with psycopg.connect(stack.database, autocommit=True) as database:
            database.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def state_of(stack: Stack) -> list[str]:
    """Its services as they are now, and what its brokers said last."""
    tails = [log.read_text(errors="replace")[-2000:] for log in stack.data.glob("kafka-*.log")]
    return [*map(str, stack.status()), *tails]


class Callers:
    """Producers that call one request after the other, each until it has its answer."""

    def __init__(self, bench: Bench, threads: int = 20, resend_after: float = 3.0) -> None:
        self._bench = bench
        self._resend_after = resend_after
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.answers: dict[str, Status] = {}
        self.trouble: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            request = f"caller-{number}-{count}"
            try:
                status = self.call(request)
            except Exception as error:  # noqa: BLE001 - told by `end`
                self.trouble.append(error)
                return
            with self._lock:
                self.answers[request] = status
            time.sleep(0.01)  # a steady flow, not all that goes

    def call(self, id: str) -> Status:
        """Calls; again under the same id as long as no broker confirms the message.

        For longer than tests wait for a broker to start, which begins later than some calls.
        """
        end = time.monotonic() + 3 * WAIT
        while True:
            try:
                return self._call(id)
            except DeliveryFailed:
                if time.monotonic() > end:
                    raise

    def _call(self, id: str) -> Status:
        return self._bench.client.call(
            "effect",
            {"table": self._bench.table},
            request_id=id,
            timeout=WAIT,
            resend_after=self._resend_after,
        )

    def answered(self, more: int, timeout: float = WAIT) -> None:
        """Waits until so many more calls have their answer."""
        wanted = len(self.answers) + more
        logs = [instance.log for instance in self._bench.instances]
        eventually(
            lambda: self.trouble or len(self.answers) >= wanted,
            timeout,
            lambda: "\n".join(
                [f"{len(self.answers)} of {wanted}", *state_of(self._bench.stack), *logs]
            ),
        )
        assert not self.trouble, self.trouble[:3]

    def end(self) -> set[str]:
        """Lets every call come to its end; returns the ids, all of which were done."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT)
        assert not self.trouble, self.trouble[:3]
        assert {status.state for status in self.answers.values()} <= {"done"}
        return set(self.answers)
