"""The registration of an instance, and the limits that it tells."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from feedback.contract.record import claim_of
from processing.cluster.instances import Registration, instances
from processing.cluster.limits import RedisLimitsStore, Setting, TypeLimit
from processing.ipc.frames import (
    Alive,
    Counts,
    DueRows,
    Heartbeat,
    LimitsFound,
    PartAnswered,
    Refuse,
    WantRows,
)
from stack import Stack
from stack.places import free_port
from tests.support.maintenance import (
    MaintenanceProcess,
    StartMaintenance,
    counters,
    record,
    registration,
)
from tests.support.private_valkey import PrivateValkey
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows


def test_registers_renews_and_removes_itself(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    maintenance = start(schema=schema, register_ttl=2)
    maintenance.ready()
    maintenance.send(Heartbeat({"joined": True, "workers": 4, "in_hand": 2, "types": ["a"]}))

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
        left = client.pttl
        eventually(lambda: 0 < left(f"{prefix}:instance:here-1") <= 2000)

    assert maintenance.stop() == 0
    assert registration(stack, prefix) is None


def test_warns_of_another_group_that_handles_the_same_types(
    start: StartMaintenance,
    stack: Stack,
    schema: str,
    prefix: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    told = "another group under the same Redis prefix handles the same types"
    said = ""

    def heard() -> str:
        nonlocal said
        said += capfd.readouterr().err
        return said

    with redis.Redis.from_url(stack.redis) as client:
        Registration(client, prefix, "there-1", 60).renew(
            {"group": "shop", "types": ["a", "c"], "at_once": {}}
        )
    maintenance = start(schema=schema)
    maintenance.ready()
    facts = {"at_once": {}, "group": "bill", "types": ["a", "b"]}
    maintenance.send(Heartbeat(facts))
    eventually(lambda: told in heard(), message=heard)
    assert "group shop: a" in said
    assert "ONCEPOOL_DATABASE_SCHEMA" in said
    assert "ONCEPOOL_REDIS_PREFIX" in said
    assert (registration(stack, prefix) or {})["group"] == "bill"

    assert maintenance.stop() == 0
    assert heard().count(told) == 1, "it is told once"


def test_the_registration_of_a_killed_instance_expires(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    maintenance = start(schema=schema, register_ttl=2)
    eventually(lambda: registration(stack, prefix) is not None)

    maintenance.child.signal(signal.SIGKILL)

    eventually(lambda: registration(stack, prefix) is None)


def test_goes_on_without_redis(start: StartMaintenance, stack: Stack, schema: str) -> None:
    maintenance = start(schema=schema, redis_url="redis://127.0.0.1:1/0")
    assert maintenance.ready().schema == "ok"
    maintenance.send(Refuse(0, "shutdown", [record(1)], []))
    assert maintenance.wait_for(PartAnswered).answered == 1
    maintenance.send(Counts({("a", "done", "ok"): 1}))

    assert maintenance.stop() == 0
    assert counters(stack, schema)["a", "done", "ok"] == 1


def limits_of(maintenance: MaintenanceProcess) -> dict[str, object] | None:
    """The limits that it told last."""
    frames = maintenance.received(LimitsFound)
    if not frames:
        return None
    told = frames[-1]._asdict()
    del told["number"]
    return told


def confirm(maintenance: MaintenanceProcess, **facts: Any) -> None:
    """The main process has applied what it was told."""
    number = maintenance.received(LimitsFound)[-1].number
    maintenance.send(Heartbeat({**facts, "limits_number": number}))


def limits_store(stack: Stack, prefix: str) -> RedisLimitsStore:
    return RedisLimitsStore(redis.Redis.from_url(stack.redis), prefix)


def test_tells_limits_when_they_change_and_only_then(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    store = limits_store(stack, prefix)
    store.change({Setting("workers"): 3, Setting("paused", "b"): 1})
    maintenance = start(schema=schema)
    maintenance.send(Heartbeat({"at_once": {}, "types": ["a"]}))
    eventually(
        lambda: limits_of(maintenance) == {"workers": 3, "types": {}, "paused": ["b"]},
        message=lambda: str(maintenance.frames),
    )
    store.change({Setting("total", "a"): 8, Setting("instance", "a"): 2, Setting("workers"): None})
    eventually(
        lambda: (
            limits_of(maintenance)
            == {"workers": None, "types": {"a": (2, 8, 8, 8)}, "paused": ["b"]}
        )
    )
    eventually(lambda: (registration(stack, prefix) or {}).get("at_once") == {"a": 8})
    store.change({Setting("total", "a"): None, Setting("instance", "a"): None})
    eventually(lambda: limits_of(maintenance) == {"workers": None, "types": {}, "paused": ["b"]})
    assert len(maintenance.received(LimitsFound)) == 3


def test_two_processes_share_a_total_and_the_second_waits_for_what_the_first_has(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    limits_store(stack, prefix).change({Setting("total", "a"): 8, Setting("workers_total"): 6})
    first = start(schema=schema)
    first.send(Heartbeat({"at_once": {}, "types": ["a"]}))
    alone = {"workers": 6, "types": {"a": (None, 8, 8, 8)}, "paused": []}
    eventually(lambda: limits_of(first) == alone)
    first.send(Heartbeat({"at_once": {"a": 8}, "types": ["a"]}))
    second = start(schema=schema, instance="here-2")
    second.send(Heartbeat({"at_once": {}, "types": ["a"]}))
    none_yet = {"workers": 3, "types": {"a": (None, 8, 0, 4)}, "paused": []}
    shared = {"workers": 3, "types": {"a": (None, 8, 4, 4)}, "paused": []}
    # Its workers say that the group has settled for it: only what the first has is in its way.
    eventually(lambda: limits_of(second) == none_yet)
    eventually(lambda: limits_of(first) == shared)
    assert limits_of(second) == none_yet, "what the first has in flight was not waited for"
    first.send(Heartbeat({"at_once": {"a": 4}, "types": ["a"]}))
    seen_each_other(stack, prefix, 2)
    assert limits_of(second) == none_yet, "the first may not have applied its smaller share yet"
    confirm(first, at_once={"a": 4}, types=["a"])
    eventually(lambda: limits_of(second) == shared)
    assert second.stop() == 0
    eventually(lambda: limits_of(first) == alone)


def test_a_main_process_that_is_silent_keeps_nothing_of_a_total(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str
) -> None:
    """As one that is frozen: its maintenance process lives and knows no more than it did."""
    limits_store(stack, prefix).change({Setting("total", "a"): 8})
    silent = start(schema=schema, stale_after=0.5, register_ttl=1)
    silent.send(Heartbeat({"at_once": {"a": 8}, "types": ["a"]}))
    eventually(lambda: limits_of(silent))
    other = start(schema=schema, instance="here-2")
    other.send(Heartbeat({"at_once": {}, "types": ["a"]}))
    eventually(lambda: (limits_of(other) or {}).get("types") == {"a": (None, 8, 8, 8)})
    assert registration(stack, prefix) is None

    def both_have_half() -> bool:
        told = [(one, limits_of(one)) for one in (silent, other)]
        for one, limits in told:
            now = (limits or {})["types"]["a"][2]
            confirm(one, at_once={"a": now}, types=["a"])
        return [limits["types"]["a"][2] for _, limits in told if limits] == [4, 4]

    eventually(both_have_half)


def test_it_follows_a_failover_of_redis(
    start: StartMaintenance, schema: str, prefix: str, tmp_path: Path
) -> None:
    old, new = PrivateValkey(tmp_path), PrivateValkey(tmp_path)
    try:
        with Proxy.of(old.url) as name, old.client() as before, new.client() as after:
            start(schema=schema, redis_url=name.before(old.url))
            eventually(lambda: instances(before, prefix))
            # The connection stays; the name leads to the new primary, which knows nothing yet.
            before.replicaof("127.0.0.1", new.port)
            name.lead_to(new.url)
            eventually(lambda: instances(after, prefix))
    finally:
        old.stop()
        new.stop()


def test_name_servers_that_do_not_answer_hold_up_nothing_but_redis(
    start: StartMaintenance, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import socket, time\n"
        "resolve = socket.getaddrinfo\n"
        "def hang(host, *rest, **more):\n"
        "    return time.sleep(3600) if host == 'redis' else resolve(host, *rest, **more)\n"
        "socket.getaddrinfo = hang\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    port = free_port(set())
    maintenance = start(schema=schema, redis_url="redis://redis:6379/0", health_port=port)
    assert maintenance.ready().schema == "ok"
    for n in (1, 2, 3):
        maintenance.send(Heartbeat({"joined": True, "at_once": {}}))
        maintenance.wait_for(Alive, n)
    assert maintenance.get(port, "/livez")[0] == 200

    def redis_is_away() -> bool:
        checks = maintenance.get(port, "/readyz?verbose")[1]["checks"]
        return not next(check["ok"] for check in checks if check["name"] == "redis")

    eventually(redis_is_away)
    assert maintenance.stop() == 0


def test_the_last_limits_hold_while_redis_is_away(
    start: StartMaintenance, schema: str, prefix: str, tmp_path: Path
) -> None:
    valkey = PrivateValkey(tmp_path)
    try:
        with valkey.client() as client:
            RedisLimitsStore(client, prefix).change({Setting("workers"): 3})
        maintenance = start(schema=schema, redis_url=valkey.url)
        maintenance.send(Heartbeat({"at_once": {}}))
        maintenance.wait_for(LimitsFound)
    finally:
        valkey.stop()
    maintenance.send(Refuse(0, "shutdown", [record(1)], []))
    maintenance.wait_for(PartAnswered)
    assert len(maintenance.received(LimitsFound)) == 1
    assert maintenance.stop() == 0


def looks(stack: Stack, prefix: str) -> dict[str, object]:
    """Instance -> when it looked at the others last, of those that said their types."""
    with redis.Redis.from_url(stack.redis) as client:
        found = instances(client, prefix)
    return {facts["id"]: facts["at"] for facts in found if facts.get("types")}


def seen_each_other(stack: Stack, prefix: str, count: int) -> None:
    """Waits until so many instances have looked at the others since all were there."""
    before = eventually(lambda: len(found := looks(stack, prefix)) == count and found)
    for _ in range(2):
        eventually(lambda seen=before: not seen.items() & looks(stack, prefix).items())
        before = looks(stack, prefix)


def claimed(frame: DueRows) -> list[str]:
    return [claim_of(record)[0] for record, _ in frame.rows]


def test_rows_are_left_to_those_who_know_their_type(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack, prefix: str
) -> None:
    """Until nobody who knows it is there: then whoever is has it waiting, or in the end dead."""
    one, two = ready("one"), ready("two")
    one.send(Heartbeat({"types": ["a", "both"], "at_once": {}}))
    two.send(Heartbeat({"types": ["b", "both"], "at_once": {}}))
    seen_each_other(stack, prefix, 2)
    for kind in ("b", "nobody"):
        rows.add(f"late-{kind}", type=kind)
    one.send(WantRows(1, 10, {}, []))
    assert claimed(one.wait_for(DueRows)) == ["late-nobody"]
    one.send(WantRows(2, 10, {}, []))
    two.send(WantRows(1, 10, {}, []))
    assert claimed(two.wait_for(DueRows)) == ["late-b"]

    rows.add("orphan", type="b")
    two.child.signal(signal.SIGKILL)
    assert two.child.wait(60)
    with redis.Redis.from_url(stack.redis) as client:
        client.delete(f"{prefix}:instance:two")  # as it does when its time is up
    assert claimed(one.wait_for(DueRows, 2)) == ["orphan"]


def test_a_type_that_nobody_here_knows_is_named_once(
    ready: StartMaintenance, capfd: pytest.CaptureFixture[str]
) -> None:
    maintenance = ready()
    for _ in range(3):
        maintenance.send(Counts({("novel", "waiting", "unknown_type"): 2}))
    assert maintenance.stop() == 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "no handler of" in line]
    assert len(lines) == 1
    assert '"type":"novel"' in lines[0]


def test_limits_that_redis_has_lost_are_put_back(
    start: StartMaintenance, schema: str, prefix: str, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    valkey = PrivateValkey(tmp_path)
    try:
        with valkey.client() as client:
            store = RedisLimitsStore(client, prefix)
            store.change({Setting("total", "a"): 8, Setting("paused", "b"): 1})
            maintenance = start(schema=schema, redis_url=valkey.url)
            maintenance.send(Heartbeat({"at_once": {}, "types": ["a", "b"]}))
            maintenance.wait_for(LimitsFound)
            before = store.read()

            client.flushall()
            eventually(lambda: store.read() == before)
            eventually(
                lambda: [i for i in instances(client, prefix) if i.get("limits_restored_at")]
            )

            # What an operator takes away stays away.
            store.change({Setting("total", "a"): None, Setting("paused", "b"): None})
            eventually(lambda: len(maintenance.received(LimitsFound)) == 2)
            assert (store.read().types, store.read().workers) == ({}, None)

            # What an operator sets before any instance has seen the loss does not hide it.
            store.change({Setting("total", "a"): 5})
            eventually(lambda: len(maintenance.received(LimitsFound)) == 3)
            maintenance.child.signal(signal.SIGSTOP)
            client.flushall()
            store.change({Setting("instance", "b"): 2})
            maintenance.child.signal(signal.SIGCONT)
            both = {"a": TypeLimit(total=5), "b": TypeLimit(instance=2)}
            eventually(lambda: store.read().types == both)
            said: list[str] = []

            def told() -> int:
                said.append(capfd.readouterr().err)
                return "".join(said).count("limits were gone from Redis")

            eventually(lambda: told() == 2)

            # Redis comes back with a copy of a time when it was not paused.
            store.change({Setting("paused", "b"): 1})
            store.change({Setting("paused", "b"): None})
            backup = client.dump(f"{prefix}:limits")
            assert isinstance(backup, bytes)
            store.change({Setting("paused", "b"): 1, Setting("total", "a"): 6})
            six = {**store.read().types}
            eventually(lambda: 6 in maintenance.received(LimitsFound)[-1].types["a"])
            client.restore(f"{prefix}:limits", 0, backup, replace=True)
            eventually(lambda: store.read().types == six)
            eventually(lambda: told() == 3)
            assert '"fields":["' in "".join(said)
    finally:
        valkey.stop()
    assert maintenance.stop() == 0


def test_a_registration_in_a_foreign_form_keeps_no_instance_from_its_own(
    ready: StartMaintenance, stack: Stack, prefix: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis.from_url(stack.redis) as client:
        Registration(client, prefix, "odd", ttl=60).renew({"types": 5})
        maintenance = ready()
        maintenance.send(Heartbeat({"types": ["t"], "at_once": {"t": 1}, "workers_wanted": 1}))
        maintenance.wait_for(LimitsFound)
        eventually(lambda: [one["id"] for one in instances(client, prefix)] == ["here"])
        said: list[str] = []
        eventually(lambda: said.append(capfd.readouterr().err) or "left out" in "".join(said))
    assert "the look at limits and instances failed" not in "".join(said)
