"""Limits set by the command line while two instances run, measured by what handlers note."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

from tests.support.commands import Commands
from tests.support.private_valkey import PrivateValkey
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

PARTITIONS = 8


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.environment |= {
        "ONCEPOOL_APP": "tests.support.limited_app:app",
        "ONCEPOOL_WORKERS": "3",
        "ONCEPOOL_MAX_IN_HAND": "600",
    }
    bench.query(f"CREATE TABLE {bench.table}_notes (id text, type text, what text, at timestamptz)")
    return bench


def command(bench: Bench, *arguments: str) -> Result:
    commands = Commands(bench.stack, bench.schema, bench.environment["ONCEPOOL_REDIS_PREFIX"])
    done = commands(*arguments, ONCEPOOL_REDIS_URL=bench.environment["ONCEPOOL_REDIS_URL"])
    assert done.exit_code == 0, done.output
    return done


def submit(
    bench: Bench, kind: str, count: int, seconds: float, name: str, key: str | None = None
) -> list[str]:
    payload = {"table": bench.table, "seconds": seconds}
    ids = [f"{name}-{n}" for n in range(count)]
    for request in ids:
        bench.client.submit(kind, payload, request_id=request, key=key)
    bench.client.flush(30)
    return ids


def settled(bench: Bench, ids: list[str]) -> set[str]:
    return {str(bench.client.wait(request, WAIT).state) for request in ids}


def most_at_once(bench: Bench, kind: str, names: str = "%") -> int:
    """How many of these ran at the same time, at most."""
    ((most,),) = bench.query(
        "SELECT coalesce(max(n), 0) FROM (SELECT sum(CASE what WHEN 'begin' THEN 1 ELSE -1 END)"
        f" OVER (ORDER BY at, what DESC) AS n FROM {bench.table}_notes"
        f" WHERE type = '{kind}' AND id LIKE '{names}') AS running"
    )
    return int(most)


def at_once(bench: Bench, kind: str) -> list[int]:
    """How many of a type each instance says that it may have in flight."""
    return sorted(facts.get("at_once", {}).get(kind, -1) for facts in bench.facts())


def running(bench: Bench) -> list[int]:
    """How many requests each instance says that it runs."""
    return sorted(facts.get("running", -1) for facts in bench.facts())


def begun(bench: Bench, names: str, before: str = "") -> int:
    """How many of these have begun; where `before` says so, before the last of those ended."""
    wanted = f"what = 'begin' AND id LIKE '{names}'"
    if before:
        last = f"SELECT max(at) FROM {bench.table}_notes WHERE what = 'end' AND id LIKE '{before}'"
        wanted += f" AND at < ({last})"
    [(count,)] = bench.query(f"SELECT count(*) FROM {bench.table}_notes WHERE {wanted}")
    return int(count)


@pytest.mark.long
def test_a_total_holds_over_instances_that_come_and_go(bench: Bench) -> None:
    bench.start()
    second = bench.start()
    bench.shared_out(2, PARTITIONS)
    free = submit(bench, "few", 60, 0.1, "free")
    assert settled(bench, free) == {"done"}
    assert most_at_once(bench, "few") > 4, "the load is too small to show a limit"

    told = command(bench, "limits", "set", "few", "--total", "3")
    assert "2 live instance(s) apply it within 5 s" in told.stderr
    eventually(lambda: at_once(bench, "few") == [1, 2], WAIT)
    limited = submit(bench, "few", 60, 0.1, "limited")
    beside = submit(bench, "other", 60, 0.1, "beside")
    assert settled(bench, beside) == {"done"}
    third = bench.start()
    assert second.stop() == 0
    third.running()
    assert settled(bench, limited) == {"done"}
    assert most_at_once(bench, "few", "limited%") <= 3
    assert most_at_once(bench, "other", "beside%") > 4

    command(bench, "limits", "set", "few", "--total", "none")
    eventually(lambda: at_once(bench, "few") == [-1, -1], WAIT)
    bench.shared_out(2, PARTITIONS)
    again = submit(bench, "few", 60, 0.1, "again")
    assert settled(bench, again) == {"done"}
    assert most_at_once(bench, "few", "again%") > 4
    bench.check_books({*free, *limited, *beside, *again})


@pytest.mark.long
def test_workers_are_resized_under_load_and_nothing_is_lost_or_repeated(bench: Bench) -> None:
    instances = [bench.start(), bench.start()]
    ids = submit(bench, "other", 400, 0.05, "resize")
    for setting, counts in (
        (("--workers", "1"), [1, 1]),
        (("--workers", "4"), [4, 4]),
        (("--workers", "none", "--workers-total", "5"), [2, 3]),
        (("--workers-total", "none"), [3, 3]),
    ):
        command(bench, "limits", "set", *setting)
        eventually(
            lambda counts=counts: sorted(len(i.workers()) for i in instances) == counts,  # type: ignore[misc]
            WAIT,
            lambda: str([i.workers() for i in instances]),
        )
    assert settled(bench, ids) == {"done"}
    assert begun(bench, "resize%") == len(ids), "a request was begun twice"
    bench.check_books(set(ids))


def test_a_handlers_own_limit_is_each_instances_until_another_is_set(bench: Bench) -> None:
    bench.start(ONCEPOOL_WORKERS="4")
    ids = submit(bench, "own", 20, 0.05, "one")
    beside = submit(bench, "other", 20, 0.05, "beside")
    assert settled(bench, ids + beside) == {"done"}
    assert most_at_once(bench, "own") == 1
    command(bench, "limits", "set", "own", "--instance", "3")
    bench.instances[0].says("limits", timeout=WAIT)
    more = submit(bench, "own", 40, 0.1, "more")
    assert settled(bench, more) == {"done"}
    assert 2 <= most_at_once(bench, "own", "more%") <= 3
    bench.check_books({*ids, *beside, *more})


def test_a_paused_type_waits_in_the_journal_and_its_flood_holds_up_nothing(bench: Bench) -> None:
    bench.environment["ONCEPOOL_WORKERS"] = "2"
    bench.start()
    bench.start()
    command(bench, "limits", "pause", "few")
    for instance in bench.instances:
        instance.says("paused=['few']", timeout=WAIT)
    # More than both pools may have in hand.
    paused = submit(bench, "few", 1500, 0.0, "paused")
    beside = submit(bench, "other", 40, 0.0, "beside")
    assert settled(bench, beside) == {"done"}

    def all_wait() -> bool:
        # A database that is slow for a moment counts as away: what was refused is sent again.
        for request, status in zip(paused, bench.client.statuses(paused), strict=True):
            if status is not None and status.code == "database_unavailable":
                bench.client.submit(
                    "few", {"table": bench.table, "seconds": 0.0}, request_id=request
                )
        return bench.states().get("waiting") == len(paused)

    eventually(all_wait, WAIT, lambda: str(bench.states()))
    status = bench.status(paused[0])
    assert (status.state, status.code) == ("waiting", "parked")
    assert "paused" in str(status.reason)
    assert "stopped" not in str(status.reason)
    assert begun(bench, "paused%") == 0
    figures = orjson.loads(command(bench, "stats", "--json").stdout)
    assert figures["summary"]["waiting"] == len(paused)
    assert [r["waiting"] for r in figures["types"] if r["type"] == "few"] == [len(paused)]

    command(bench, "limits", "resume", "few")
    assert settled(bench, paused) == {"done"}
    assert begun(bench, "paused%") == len(paused)
    bench.check_books({*paused, *beside})


@pytest.mark.long
def test_a_flood_of_a_limited_type_leaves_the_pool_to_others(bench: Bench) -> None:
    bench.start()
    bench.start()
    bench.shared_out(2, PARTITIONS)
    command(bench, "limits", "set", "few", "--total", "4")
    eventually(lambda: at_once(bench, "few") == [2, 2], WAIT)
    flood = submit(bench, "few", 800, 0.01, "flood")
    beside = submit(bench, "other", 40, 0.0, "beside")
    assert settled(bench, beside) == {"done"}
    assert begun(bench, "flood%", before="beside%") < len(flood) / 2, "others had to wait for it"
    assert settled(bench, flood) == {"done"}
    assert most_at_once(bench, "few", "flood%") <= 4
    assert begun(bench, "flood%") == len(flood)
    bench.check_books({*flood, *beside})


def test_due_rows_of_a_limited_type_are_run_by_all_instances(bench: Bench) -> None:
    """Each has workers for more than its limit lets it run."""
    bench.start()
    bench.start()
    bench.shared_out(2, PARTITIONS)
    names = [f"row-{n}" for n in range(10)]
    with closing(WaitingRows(bench.stack.database, bench.schema)) as rows:
        payload = orjson.dumps({"table": bench.table, "seconds": 0.5})
        with rows.connection.transaction():
            rows.add(*names, type="own", payload=payload)
        owners = f"SELECT DISTINCT split_part(token, ':', 1) FROM {bench.schema}.requests"
        eventually(lambda: len(rows.query(f"{owners} WHERE token IS NOT NULL")) == 2)
    eventually(lambda: bench.done() == len(names), WAIT)
    assert begun(bench, "row%") == len(names)
    assert most_at_once(bench, "own") <= 2


def test_with_redis_away_the_last_known_limits_hold(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    valkey = PrivateValkey(tmp_path / "valkey")
    try:
        bench.environment["ONCEPOOL_REDIS_URL"] = valkey.url
        command(bench, "limits", "set", "few", "--total", "2", "--workers", "3")
        instance = bench.start(ONCEPOOL_WORKERS="2")
        # A total that stands already is used only once others would have objected.
        eventually(lambda: at_once(bench, "few") == [2])
    finally:
        valkey.stop()
    instance.says("the last limits hold")
    ids = submit(bench, "few", 40, 0.05, "away")
    eventually(lambda: bench.done() == len(ids), WAIT)
    assert most_at_once(bench, "few") == 2
    assert len(instance.workers()) == 3
    bench.check_books(set(ids))


@pytest.mark.long  # test_membership.py has two processes share a total
def test_a_total_follows_the_work_and_holds_whatever_redis_does(
    bench: Bench, tmp_path: Path
) -> None:
    """The backlog lies with one instance, then with both; Redis loses all, and answers nothing."""
    (tmp_path / "valkey").mkdir()
    valkey = PrivateValkey(tmp_path / "valkey")
    bench.environment |= {
        "ONCEPOOL_REDIS_URL": valkey.url,
        "ONCEPOOL_ORDERING": "none",
        "ONCEPOOL_WORKERS": "2",
    }
    try:
        command(bench, "limits", "set", "few", "--total", "2", "--workers-total", "4")
        instances = [bench.start(), bench.start()]
        eventually(lambda: at_once(bench, "few") == [1, 1], WAIT)
        ids = submit(bench, "few", 40, 0.5, "one", key="the same partition")

        eventually(lambda: at_once(bench, "few") == [0, 2], WAIT)
        eventually(lambda: running(bench) == [0, 2], WAIT, lambda: str(bench.facts()))
        set_lines = [i.log.count("limits  ") for i in instances]

        with valkey.client() as client:
            client.flushall()
            eventually(lambda: [one["total"] for one in shown(bench)["types"]] == [2], WAIT)
        ids += [i for n in range(8) for i in submit(bench, "few", 3, 0.5, f"all-{n}", key=str(n))]
        eventually(lambda: at_once(bench, "few") == [1, 1], WAIT, lambda: str(bench.facts()))
        assert bench.done() < len(ids), "the work was over before the share moved back"

        valkey.pause()
        for instance in instances:
            instance.says("the last limits hold")
        valkey.resume()
        eventually(lambda: bench.done() == len(ids), WAIT)
        problems = orjson.loads(command(bench, "stats", "--json").stdout)["problems"]
    finally:
        valkey.stop()
    assert most_at_once(bench, "few") == 2
    assert "put back by an instance" in problems["limits"]
    assert [i.log.count("limits  ") for i in instances] == set_lines, (
        "each move of shares is told, or who looked first after the loss took all workers"
    )
    bench.check_books(set(ids))


def test_the_command_line(bench: Bench) -> None:
    nothing = command(bench, "limits", "show")
    assert "nothing is limited" in nothing.stdout
    told = command(bench, "limits", "set", "few", "--total", "8", "--instance", "2", "--json")
    assert "no instance is registered" in told.stderr
    command(bench, "limits", "set", "--workers", "6", "--workers-total", "24")
    command(bench, "limits", "pause", "own")
    assert shown(bench) == {
        "workers": 6,
        "workers_total": 24,
        "types": [
            {"type": "few", "total": 8, "instance": 2, "paused": False, "at_once": {}},
            {"type": "own", "total": None, "instance": None, "paused": True, "at_once": {}},
        ],
        "instances": [],
        "unread": [],
    }
    stats = orjson.loads(command(bench, "stats", "--json").stdout)
    assert stats["limits"] == shown(bench)
    assert stats["summary"]["instances"] == 0
    assert stats["problems"] == {}
    command(bench, "limits", "resume", "own")
    command(bench, "limits", "set", "few", "--total", "none", "--instance", "none")
    command(bench, "limits", "set", "--workers", "none", "--workers-total", "none")
    assert shown(bench)["types"] == []


def shown(bench: Bench) -> Any:
    return orjson.loads(command(bench, "limits", "show", "--json").stdout)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["set"], "nothing to set"),
        (["set", "few"], "what of the type?"),
        (["set", "--total", "3"], "name it"),
        (["set", "few", "--total", "0"], "pause it"),
        (["set", "few", "--total", "many"], "a whole number, or none"),
        (["set", "--workers", "-1"], "from 1 to 1024"),
        (["set", "", "--total", "1"], "type is empty"),
    ],
)
def test_wrong_limits_are_wrong_usage(
    arguments: list[str], message: str, oncepool: Commands
) -> None:
    done = oncepool("limits", *arguments, COLUMNS="300")
    assert done.exit_code == 2
    assert message in done.stderr


def test_without_redis_it_is_said_what_holds(oncepool: Commands) -> None:
    done = oncepool("limits", "show", ONCEPOOL_REDIS_URL="redis://:hid@127.0.0.1:1/0")
    assert done.exit_code == 1
    assert "The last known limits hold" in done.stderr
    assert "hid" not in done.stderr
