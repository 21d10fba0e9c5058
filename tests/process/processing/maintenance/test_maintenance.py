"""The clerk as a real process, on a real PostgreSQL and Valkey."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psycopg
import pytest
import redis

from feedback.contract.record import Record
from feedback.status.store import RedisStatusStore
from processing.cluster.limits import RedisLimitsStore, Setting
from processing.ipc.parent_watch import EXIT_ORPHANED
from processing.maintenance.settings import ClerkSettings
from stack import Stack
from tests.support.clerk import ClerkProcess
from tests.support.private_valkey import PrivateValkey
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

StartClerk = Callable[..., ClerkProcess]
LOG = {"log_format": "json", "level": "info"}


@pytest.fixture
def settings(stack: Stack, prefix: str) -> ClerkSettings:
    return ClerkSettings(
        instance="here-1",
        database_url=stack.database,
        schema="not_made",
        redis_url=stack.redis,
        redis_prefix=prefix,
        log=LOG,
        health_port=0,
        register_interval=0.1,
        register_ttl=2,
        limits_interval=0.1,
    )


@pytest.fixture
def start(settings: ClerkSettings) -> Iterator[StartClerk]:
    clerks: list[ClerkProcess] = []

    def make(**changes: object) -> ClerkProcess:
        clerks.append(ClerkProcess(replace(settings, **changes)))  # type: ignore[arg-type]
        return clerks[-1]

    yield make
    for clerk in clerks:
        clerk.close()


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Proxy]:
    """Stands between the clerk and PostgreSQL."""
    address = urlsplit(stack.database)
    with Proxy(address.hostname or "127.0.0.1", address.port or 5432) as made:
        yield made


@pytest.fixture
def through(stack: Stack, proxy: Proxy) -> str:
    """The database's URL through the proxy."""
    address = urlsplit(stack.database)
    user, at, _ = address.netloc.rpartition("@")
    return address._replace(netloc=f"{user}{at}127.0.0.1:{proxy.port}").geturl()


@pytest.fixture
def statuses(stack: Stack, prefix: str) -> Iterator[RedisStatusStore]:
    store = RedisStatusStore(stack.redis, prefix, timeout=5.0)
    yield store
    store.close()


def registration(stack: Stack, prefix: str) -> dict[str, object] | None:
    with redis.Redis.from_url(stack.redis) as client:
        value = client.get(f"{prefix}:instance:here-1")
    return None if value is None else orjson.loads(value)


def record(number: int, *, headers: list[tuple[str, bytes | None]] | None = None) -> Record:
    if headers is None:
        headers = [("ce_id", f"r-{number}".encode()), ("ce_type", b"payment.create")]
    return ("requests", 0, number, 1_700_000_000_000, b"k", b"{}", headers, "payment.create")


def counters(stack: Stack, schema: str) -> dict[tuple[str, str, str], int]:
    with psycopg.connect(stack.database) as database:
        rows = database.execute(
            f"SELECT type, state, code, sum(n)::int FROM {schema}.counters GROUP BY 1, 2, 3"
        ).fetchall()
    return {(name, state, code): n for name, state, code, n in rows}


# Start


def test_ready_says_how_the_schema_stands(start: StartClerk, schema: str) -> None:
    assert start(schema=schema).ready()["schema"] == "ok"


def test_a_missing_schema_is_named_and_not_made(
    start: StartClerk, stack: Stack, empty_schema: str
) -> None:
    ready = start(schema=empty_schema).ready()

    assert ready["schema"] == "missing"
    assert "oncepool migrate" in ready["detail"]
    with psycopg.connect(stack.database) as database:
        found = database.execute("SELECT to_regnamespace(%s)", [empty_schema]).fetchone()
    assert found == (None,)


def test_migrates_where_the_settings_say_so(start: StartClerk, empty_schema: str) -> None:
    assert start(schema=empty_schema, migrate=True).ready()["schema"] == "ok"


def test_a_newer_schema_is_refused(start: StartClerk, stack: Stack, schema: str) -> None:
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"UPDATE {schema}.schema_version SET version = version + 1000")

    assert start(schema=schema).ready()["schema"] == "too_new"


def test_an_unreachable_database_is_told_and_then_found(
    start: StartClerk, schema: str, proxy: Proxy, through: str
) -> None:
    proxy.cut()
    clerk = start(schema=schema, database_url=through)
    assert clerk.ready()["schema"] == "unreachable"

    proxy.mend()

    assert clerk.wait_for("database")[1] is True


def test_an_unusable_schema_found_late_is_fatal(
    start: StartClerk, empty_schema: str, proxy: Proxy, through: str
) -> None:
    proxy.cut()
    clerk = start(schema=empty_schema, database_url=through)
    assert clerk.ready()["schema"] == "unreachable"

    proxy.mend()

    assert "oncepool migrate" in clerk.wait_for("fatal")[1]


# Probe


def test_answers_a_probe_when_the_database_was_never_away(start: StartClerk, schema: str) -> None:
    clerk = start(schema=schema)
    clerk.ready()

    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is True
    clerk.send("probe")
    assert clerk.wait_for("database", 2)[1] is True


def test_tells_when_the_database_goes_and_when_it_is_back(
    start: StartClerk, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.cut()
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False

    proxy.mend()

    assert clerk.wait_for("database", 2)[1] is True


def test_the_clerk_itself_finds_the_database_away(
    start: StartClerk, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through, sweep_interval=0.1)
    clerk.ready()

    proxy.cut()

    assert clerk.wait_for("database", 1)[1] is False


def test_a_database_that_hangs_is_told_and_found_again(
    start: StartClerk, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through, hung_after=0.5)
    clerk.ready()

    proxy.hang()
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False

    proxy.mend()
    assert clerk.wait_for("database", 2)[1] is True


# Refusals and counters


def letters(stack: Stack, schema: str) -> list[tuple[object, ...]]:
    with psycopg.connect(stack.database) as database:
        return database.execute(
            f"SELECT reason, request_id, detail FROM {schema}.dead_letters ORDER BY kafka_offset"
        ).fetchall()


def test_refused_requests_are_answered_and_counted(
    start: StartClerk, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    clerk = start(schema=schema)
    clerk.ready()

    clerk.send("refuse", 5, "database_unavailable", [record(1), record(2)], [])

    assert clerk.wait_for("refused")[1:] == (5, 2)
    found = eventually(lambda: None not in (got := statuses.read(["r-1", "r-2"])) and got)
    assert {(s.state, s.code) for s in found if s} == {("failed", "database_unavailable")}
    assert clerk.stop() == 0
    assert counters(stack, schema) == {("payment.create", "failed", "database_unavailable"): 2}


def test_what_nobody_sends_again_becomes_a_dead_letter(
    start: StartClerk, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    nameless = record(7, headers=[("ce_type", b"payment.create")])
    typeless = ("requests", 0, 8, 1_700_000_000_000, None, b"{}", [("ce_id", b"m-8")], None)
    foreign = ("theirs", 0, 9, 1_700_000_000_000, None, b"{}", [], None)

    clerk.send("refuse", 0, "shutdown", [nameless, record(1), typeless, foreign], ["theirs"])

    assert clerk.wait_for("refused", 2)[1] == 0
    assert sum(frame[2] for frame in clerk.received("refused")) == 4
    found = letters(stack, schema)
    assert [row[:2] for row in found] == [
        ("malformed", None), ("malformed", "m-8"), ("malformed", None),
    ]  # fmt: skip
    assert "decoder had not run" in str(found[2][2])
    told = eventually(lambda: statuses.read(["m-8"])[0])
    assert (told.state, told.code) == ("failed", "malformed")
    assert clerk.stop() == 0
    assert counters(stack, schema)["payment.create", "dead_letter", "malformed"] == 1


def test_dead_letters_wait_for_the_database(
    start: StartClerk, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.cut()
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False
    malformed = record(7, headers=[("ce_type", b"payment.create")])

    clerk.send("refuse", 3, "database_unavailable", [malformed, record(1)], [])
    assert clerk.wait_for("refused")[1:] == (3, 1)
    proxy.mend()

    assert clerk.wait_for("refused", 2)[1:] == (3, 1)
    assert [row[0] for row in letters(stack, schema)] == ["malformed"]


def test_dead_letters_that_are_lost_at_the_end_are_named(
    start: StartClerk, schema: str, proxy: Proxy, through: str, capfd: pytest.CaptureFixture[str]
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.cut()
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False
    malformed = record(7, headers=[("ce_type", b"payment.create")])
    clerk.send("refuse", 0, "shutdown", [malformed], [])
    clerk.wait_for("refused")

    assert clerk.stop() == 0
    text = capfd.readouterr()
    (line,) = [li for li in (text.out + text.err).splitlines() if "dead letter is lost" in li]
    assert orjson.loads(line)["place"] == "requests/0/7"


def test_refusals_are_answered_while_the_database_hangs(
    start: StartClerk, schema: str, statuses: RedisStatusStore, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.hang()
    clerk.send("probe")

    clerk.send("refuse", 0, "shutdown", [record(1)], [])

    assert clerk.wait_for("refused", timeout=3.0)[2] == 1
    eventually(lambda: statuses.read(["r-1"])[0] is not None, 3.0)


def test_statuses_that_wait_are_sent_before_the_end(
    start: StartClerk, schema: str, prefix: str, tmp_path: Path
) -> None:
    valkey = PrivateValkey(tmp_path)
    store = RedisStatusStore(valkey.url, prefix, timeout=5.0)
    try:
        clerk = start(schema=schema, redis_url=valkey.url)
        clerk.ready()
        valkey.pause()
        for first in range(0, 3000, 500):
            some = [record(n) for n in range(first, first + 500)]
            clerk.send("refuse", first, "shutdown", some, [])
        clerk.wait_for("refused", 6)
        clerk.send("stop")
        valkey.resume()

        assert clerk.child.wait(5)
        assert clerk.child.exit_code == 0
        assert None not in store.read([f"r-{n}" for n in range(3000)])
    finally:
        store.close()
        valkey.stop()


def test_counters_are_exact(start: StartClerk, stack: Stack, schema: str) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    for _ in range(50):
        clerk.send("counts", {("a", "done", "ok"): 3, ("b", "failed", "timeout"): 1})
    assert clerk.stop() == 0

    assert counters(stack, schema) == {("a", "done", "ok"): 150, ("b", "failed", "timeout"): 50}


def test_counters_outlive_an_outage(
    start: StartClerk, stack: Stack, schema: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through)
    clerk.ready()
    proxy.cut()
    clerk.send("counts", {("a", "done", "ok"): 3})
    clerk.send("probe")
    assert clerk.wait_for("database", 1)[1] is False

    proxy.mend()
    clerk.send("counts", {("a", "done", "ok"): 4})

    eventually(lambda: counters(stack, schema) == {("a", "done", "ok"): 7})


# Sweep


CLAIM = """
INSERT INTO {schema}.requests (id, type, state, code, run, attempt, effect, token, lease_until,
                               fingerprint, topic, partition, kafka_offset, produced_at)
SELECT id, 'card.charge', 'running', 'ok', 2, 1, 'external', 'dead-chunk',
       now() + make_interval(secs => lease), decode('0f', 'hex'), 'requests', 0, 1, now()
FROM unnest(%s::text[], %s::float[]) AS claims(id, lease)
"""


def claim(stack: Stack, schema: str, leases: dict[str, float]) -> None:
    """Claims that a dead worker has left, by the seconds that their leases still have."""
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(CLAIM.format(schema=schema), [list(leases), list(leases.values())])


def states(stack: Stack, schema: str) -> dict[str, tuple[str, int]]:
    with psycopg.connect(stack.database) as database:
        rows = database.execute(f"SELECT id, state, run FROM {schema}.requests").fetchall()
    return {name: (state, run) for name, state, run in rows}


def test_expired_claims_become_in_doubt_and_producers_hear_of_it(
    start: StartClerk, stack: Stack, schema: str, prefix: str, statuses: RedisStatusStore
) -> None:
    claim(stack, schema, {"old": -1.0, "live": 60.0})
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(
            f"UPDATE {schema}.requests SET status_ttl = 77, fingerprint = '\\xabcd'".encode()
        )
    clerk = start(schema=schema, sweep_interval=0.1)
    clerk.ready()

    (status,) = eventually(lambda: (got := statuses.read(["old"])) != [None] and got)

    assert status is not None
    assert (status.state, status.code, status.run) == ("in_doubt", "worker_died", 2)
    assert status.error is not None
    assert "lease ran out" in status.error
    assert status.fingerprint == "abcd"
    key = f"{prefix}:status:old"
    assert 60 < redis.Redis.from_url(stack.redis).ttl(key) <= 77
    assert states(stack, schema) == {"old": ("in_doubt", 2), "live": ("running", 2)}
    assert statuses.read(["live"]) == [None]
    assert clerk.stop() == 0
    assert counters(stack, schema) == {("card.charge", "in_doubt", "worker_died"): 1}


def test_a_claim_that_expires_later_is_found_later(
    start: StartClerk, stack: Stack, schema: str
) -> None:
    clerk = start(schema=schema, sweep_interval=0.1)
    clerk.ready()

    claim(stack, schema, {"soon": 0.5})

    eventually(lambda: states(stack, schema)["soon"] == ("in_doubt", 2))


def test_two_clerks_sweep_each_claim_once(start: StartClerk, stack: Stack, schema: str) -> None:
    clerks = [start(schema=schema, instance=f"here-{n}", sweep_interval=0.05) for n in range(2)]
    for clerk in clerks:
        clerk.ready()
    claim(stack, schema, {f"c-{n}": -1.0 for n in range(1500)})

    eventually(lambda: set(states(stack, schema).values()) == {("in_doubt", 2)})

    assert [clerk.stop() for clerk in clerks] == [0, 0]
    assert counters(stack, schema) == {("card.charge", "in_doubt", "worker_died"): 1500}


# Registration


def test_registers_renews_and_removes_itself(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    clerk.send("beat", {"joined": True, "workers": 4, "in_hand": 2, "types": ["a"]})

    found = eventually(
        lambda: (r := registration(stack, prefix)) is not None and "workers" in r and r
    )
    assert found["id"] == "here-1"
    assert found["pid"] == os.getpid()
    assert {"host", "version", "started_at", "at"} <= found.keys()
    assert (found["workers"], found["in_hand"], found["types"]) == (4, 2, ["a"])

    first = found["at"]
    eventually(lambda: (registration(stack, prefix) or {}).get("at") != first)
    with redis.Redis.from_url(stack.redis) as client:
        assert 0 < client.pttl(f"{prefix}:instance:here-1") <= 2000

    assert clerk.stop() == 0
    assert registration(stack, prefix) is None


def test_the_registration_of_a_killed_instance_expires(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    clerk = start(schema=schema)
    eventually(lambda: registration(stack, prefix) is not None)

    clerk.child.signal(signal.SIGKILL)

    eventually(lambda: registration(stack, prefix) is None)


def test_goes_on_without_redis(start: StartClerk, stack: Stack, schema: str) -> None:
    clerk = start(schema=schema, redis_url="redis://127.0.0.1:1/0")
    assert clerk.ready()["schema"] == "ok"
    clerk.send("refuse", 0, "shutdown", [record(1)], [])
    assert clerk.wait_for("refused")[2] == 1
    clerk.send("counts", {("a", "done", "ok"): 1})

    assert clerk.stop() == 0
    assert counters(stack, schema)["a", "done", "ok"] == 1


# Limits


def limits_of(clerk: ClerkProcess) -> dict[str, object] | None:
    """The limits that it told last."""
    frames = clerk.received("limits")
    return frames[-1][1] if frames else None


def limits_store(stack: Stack, prefix: str) -> RedisLimitsStore:
    return RedisLimitsStore(redis.Redis.from_url(stack.redis), prefix)


def test_tells_limits_when_they_change_and_only_then(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    store = limits_store(stack, prefix)
    store.change({Setting("workers"): 3, Setting("paused", "b"): 1})
    clerk = start(schema=schema)
    clerk.send("beat", {"at_once": {}, "types": ["a"]})
    eventually(
        lambda: limits_of(clerk) == {"workers": 3, "types": {}, "paused": ["b"]},
        message=lambda: str(clerk.frames),
    )
    store.change({Setting("total", "a"): 8, Setting("instance", "a"): 2, Setting("workers"): None})
    eventually(
        lambda: limits_of(clerk) == {"workers": None, "types": {"a": (2, 8, 8)}, "paused": ["b"]}
    )
    eventually(lambda: (registration(stack, prefix) or {}).get("at_once") == {"a": 8})
    store.change({Setting("total", "a"): None, Setting("instance", "a"): None})
    eventually(lambda: limits_of(clerk) == {"workers": None, "types": {}, "paused": ["b"]})
    assert len(clerk.received("limits")) == 3


def test_two_clerks_share_a_total_and_the_second_waits_for_what_the_first_has(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    limits_store(stack, prefix).change({Setting("total", "a"): 8, Setting("workers_total"): 6})
    first = start(schema=schema)
    first.send("beat", {"at_once": {}})
    alone = {"workers": 6, "types": {"a": (None, 8, 8)}, "paused": []}
    eventually(lambda: limits_of(first) == alone)
    first.send("beat", {"at_once": {"a": 8}})
    second = start(schema=schema, instance="here-2")
    second.send("beat", {"at_once": {}})
    none_yet = {"workers": 3, "types": {"a": (None, 0, 4)}, "paused": []}
    shared = {"workers": 3, "types": {"a": (None, 4, 4)}, "paused": []}
    eventually(lambda: limits_of(second) == none_yet)
    eventually(lambda: limits_of(first) == shared)
    assert limits_of(second) == none_yet, "what the first has in flight was not waited for"
    first.send("beat", {"at_once": {"a": 4}})
    eventually(lambda: limits_of(second) == shared)
    assert second.stop() == 0
    eventually(lambda: limits_of(first) == alone)


def test_the_last_limits_hold_while_redis_is_away(
    start: StartClerk, schema: str, prefix: str, tmp_path: Path
) -> None:
    valkey = PrivateValkey(tmp_path)
    try:
        with valkey.client() as client:
            RedisLimitsStore(client, prefix).change({Setting("workers"): 3})
        clerk = start(schema=schema, redis_url=valkey.url)
        clerk.send("beat", {"at_once": {}})
        clerk.wait_for("limits")
    finally:
        valkey.stop()
    clerk.send("refuse", 0, "shutdown", [record(1)], [])
    clerk.wait_for("refused")
    assert len(clerk.received("limits")) == 1
    assert clerk.stop() == 0


# Health


def port_of(stack: Stack, prefix: str) -> int:
    facts = eventually(lambda: registration(stack, prefix))
    port = facts["health_port"]
    assert isinstance(port, int)
    return port


def test_health_endpoints(
    start: StartClerk, stack: Stack, schema: str, prefix: str, proxy: Proxy, through: str
) -> None:
    clerk = start(schema=schema, database_url=through, stale_after=1.5)
    clerk.ready()
    port = port_of(stack, prefix)
    assert clerk.get(port, "/readyz")[0] == 503

    clerk.send("beat", {"joined": True, "assigned": 2, "stopping": False})
    eventually(lambda: clerk.get(port, "/readyz") == (200, {"ok": True}))
    assert clerk.get(port, "/livez")[0] == 200

    proxy.cut()
    clerk.send("probe")
    clerk.wait_for("database")
    clerk.send("beat", {"joined": True})
    status, answer = clerk.get(port, "/readyz?verbose")
    assert status == 503
    assert [c["name"] for c in answer["checks"] if not c["ok"]] == ["database"]

    # No beat any more: the main process hangs.
    eventually(lambda: clerk.get(port, "/livez")[0] == 503)


def test_a_taken_health_port_is_fatal(
    start: StartClerk, stack: Stack, schema: str, prefix: str
) -> None:
    start(schema=schema).ready()
    port = port_of(stack, prefix)

    assert "another health_port" in " ".join(
        start(schema=schema, health_port=port).wait_for("fatal")[1].split()
    )


# End


def test_signals_to_the_group_do_not_end_it(start: StartClerk, schema: str) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    for number in (signal.SIGINT, signal.SIGTERM):
        clerk.child.signal(number)

    clerk.send("probe")
    clerk.wait_for("database")
    assert clerk.stop() == 0


def test_a_closed_channel_ends_it(start: StartClerk, schema: str) -> None:
    clerk = start(schema=schema)
    clerk.ready()
    clerk.child.channel.close()

    assert clerk.child.wait(5)
    assert clerk.child.exit_code == EXIT_ORPHANED


PARENT = """
import sys, time, orjson
from processing.ipc.child import Child
child = Child("processing.maintenance", orjson.loads(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_the_death_of_the_main_process_ends_it(settings: ClerkSettings, schema: str) -> None:
    facts = orjson.dumps(replace(settings, schema=schema))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, facts], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)

    parent.kill()
    parent.wait()
    parent.stdout.close()

    eventually(lambda: not _runs(pid), 5.0)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1][:1]
    except OSError:
        return False
    return state != b"Z"
