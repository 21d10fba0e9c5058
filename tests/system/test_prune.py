"""`oncepool prune` on the real stack."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import orjson
import pytest
import time_machine
from confluent_kafka import Producer

from consumer.commands import operator as operating
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal
from tests.support.service import WAIT, Bench
from tests.support.statuses import write
from tests.support.waiting import eventually

OLD = datetime.now(UTC) - timedelta(days=40)
DAY = 86_400_000


@pytest.fixture
def schema(pooled_schema: str) -> str:
    return pooled_schema


@pytest.fixture
def journal(journal: Journal) -> Journal:
    for name, state, ended in (("a", "done", OLD), ("b", "done", "now"), ("c", "dead", OLD)):
        journal.put(name, state, finished_at=ended)
    return journal


def left(journal: Journal) -> list[str]:
    return [row["id"] for row in journal.rows("SELECT id FROM {s}.requests ORDER BY id")]


def test_a_dry_run_counts_and_deletes_nothing(oncepool: Commands, journal: Journal) -> None:
    result = oncepool("prune", "--older-than", "30d", "--dry-run", "--json")

    assert result.exit_code == 0, result.output
    assert answer(result)["rows"]["requests"] == 1
    assert left(journal) == ["a", "b", "c"]


def test_old_requests_are_deleted(oncepool: Commands, journal: Journal) -> None:
    result = oncepool("prune", "--force", "--older-than", "30d", "--yes", "--json")

    assert result.exit_code == 0, result.output
    assert answer(result)["rows"]["requests"] == 1
    assert left(journal) == ["b", "c"]
    again = oncepool("prune", "--force", "--older-than", "30d", "--json")
    assert again.exit_code == 0, "nothing to ask about"
    assert answer(again)["rows"]["requests"] == 0


def test_who_is_not_asked_waits_for_no_count(
    oncepool: Commands, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To count is to read every row of the journal, beside a service that has its own to do."""
    monkeypatch.delattr("consumer.commands.prune.prunable")

    result = oncepool("prune", "--force", "--older-than", "30d", "--yes", "--share", "100")

    assert result.exit_code == 0, result.output
    assert left(journal) == ["b", "c"]


def test_an_age_goes_by_the_clock_of_the_database(oncepool: Commands, journal: Journal) -> None:
    """By one that is ahead, requests of now would be old: deleted, they run again if sent again."""
    arguments = ("prune", "--force", "--older-than", "30d", "--yes", "--json")
    with time_machine.travel(timedelta(days=31)):
        result = oncepool(*arguments)
    assert result.exit_code == 0, result.output
    assert left(journal) == ["b", "c"]


def test_it_asks_and_does_nothing_unasked(
    oncepool: Commands, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked = oncepool("prune", "--force", "--older-than", "30d")
    monkeypatch.setattr(operating, "interactive", lambda: True)
    refused = oncepool("prune", "--force", "--older-than", "30d", stdin="n\n")

    assert (unasked.exit_code, refused.exit_code) == (2, 1)
    assert "delete 1 request that ended before" in refused.stderr
    assert left(journal) == ["a", "b", "c"]
    assert oncepool("prune", "--force", "--older-than", "30d", stdin="y\n").exit_code == 0
    assert left(journal) == ["b", "c"]


def test_it_warns_when_a_resend_may_still_need_them(
    oncepool: Commands, journal: Journal, topic: Callable[..., str]
) -> None:
    names = (
        topic(**{"retention.ms": str(4 * DAY), "segment.ms": str(3 * DAY)}),
        topic(**{"retention.ms": "-1"}),
        topic(**{"retention.ms": str(DAY), "segment.ms": str(DAY)}),
        topic(**{"retention.ms": str(DAY), "cleanup.policy": "compact"}),
        topic(**{"retention.ms": str(DAY)}),  # and the cluster's segments of a week
    )

    def warnings(older_than: str, *more: str) -> str:
        result = oncepool(
            "prune", "--older-than", older_than, "--dry-run", *more,
            ONCEPOOL_KAFKA_TOPICS=",".join(names),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        return result.stderr

    said = warnings("7d")
    made_of = "(retention.ms 4d + segment.ms 3d)"
    assert f"7d is shorter than the retention of topic {names[0]} {made_of}" in said
    assert f"topic {names[1]} keeps its messages for ever (retention.ms -1)" in said
    assert names[2] not in said
    assert f"topic {names[3]} keeps its messages for ever (cleanup.policy compact)" in said
    assert f"of topic {names[4]} (retention.ms 1d + segment.ms 7d)" in said
    assert names[0] not in warnings("9d")
    assert names[0] in warnings("9d", "--resend-window", "3d")


@pytest.mark.parametrize(
    "older_than,window,retention,servers",
    [
        ("1m", "1d", None, None),  # producers send again for a day
        ("7d", "1d", {"retention.ms": str(7 * DAY)}, None),
        ("9d", "1d", {"retention.ms": str(7 * DAY), "segment.ms": str(7 * DAY)}, None),
        ("30d", "1d", {"retention.ms": "-1"}, None),
        ("30d", "1d", {"retention.ms": str(DAY), "cleanup.policy": "compact"}, None),
        ("30d", "1d", {"retention.ms": str(DAY)}, "127.0.0.1:1"),  # nobody knows
    ],
)
def test_what_could_run_again_is_deleted_by_force_only(
    oncepool: Commands,
    journal: Journal,
    topic: Callable[..., str],
    older_than: str,
    window: str,
    retention: dict[str, str] | None,
    servers: str | None,
) -> None:
    changes = {}
    if retention is not None:
        changes["ONCEPOOL_KAFKA_TOPICS"] = topic(**retention)
    if servers is not None:
        changes["ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS"] = servers
    arguments = ("prune", "--older-than", older_than, "--resend-window", window, "--yes")

    refused = oncepool(*arguments, **changes)

    assert refused.exit_code == 1
    assert "nothing was deleted" in refused.stderr
    assert "--force" in refused.stderr
    assert left(journal) == ["a", "b", "c"]
    forced = oncepool(*arguments, "--force", **changes)
    assert forced.exit_code == 0, forced.output
    assert left(journal) == ["b", "c"]


def test_without_kafka_it_says_what_it_could_not_look_at(
    oncepool: Commands, journal: Journal
) -> None:
    arguments = ("prune", "--older-than", "30d", "--dry-run")
    away = oncepool(
        *arguments, ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1", ONCEPOOL_KAFKA_TOPICS="a"
    )

    assert "can't be read: set" in oncepool(*arguments).stderr
    assert "could not be read" in away.stderr
    assert away.exit_code == 0
    refused = oncepool("prune", "--older-than", "30d", "--yes")
    assert (refused.exit_code, "nothing was deleted" in refused.stderr) == (1, True)
    assert oncepool("prune", "--older-than", "30d", "--yes", "--force").exit_code == 0


def test_statuses_go_with_their_requests(
    oncepool: Commands, journal: Journal, stack: Stack, prefix: str
) -> None:
    """A status may outlive its row, and would be told to who uses the id anew."""
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    arguments = ("prune", "--force", "--older-than", "30d", "--yes", "--json")
    try:
        store.write([write(name, State.DONE, at=OLD) for name in ("a", "b", "c")])
        away = oncepool(*arguments, ONCEPOOL_REDIS_URL="redis://127.0.0.1:1")
        assert (away.exit_code, left(journal)) == (0, ["b", "c"])
        said = answer(away)["warnings"][-1]
        assert "Statuses of deleted requests may stand in Redis until" in said
        assert said in away.stderr
        assert None not in store.read(["a", "b", "c"])

        journal.put("a", "done", finished_at=OLD)
        assert "Statuses of deleted requests" not in oncepool(*arguments).stderr
        assert [status and status.id for status in store.read(["a", "b", "c"])] == [None, "b", "c"]
    finally:
        store.close()


def test_an_id_that_was_deleted_is_new_also_to_its_producer(
    bench: Bench, oncepool: Commands
) -> None:
    """The old request's status has a higher rank than what becomes of the new one."""
    bench.start()
    assert bench.outcome("effect", {"table": bench.table}, request_id="a").state == "done"
    arguments = ("prune", "--force", "--older-than", "0s", "--yes", "--json")
    eventually(lambda: answer(oncepool(*arguments))["rows"]["requests"] == 1, WAIT)
    assert bench.client.status("a") is None

    assert bench.outcome("raises", {"table": bench.table}, request_id="a").state == "failed"


@pytest.mark.parametrize("age", ["soon", "2999-01-01", "99999999999d"])
def test_wrong_ages_are_wrong_usage(oncepool: Commands, age: str) -> None:
    assert oncepool("prune", "--older-than", age).exit_code == 2


def test_which_request_of_a_reference_was_started_is_kept_by_the_databases_clock(
    bench: Bench, oncepool: Commands
) -> None:
    """A producer's clock is far behind: a late one of before the one that ran does not run."""
    bench.start()

    def send(name: str, at: datetime) -> None:
        producer = Producer({"bootstrap.servers": bench.stack.kafka})
        headers = {"ce_id": name, "ce_type": "recount", "ce_time": at.isoformat()}
        value = orjson.dumps({"table": bench.table, "sku": "s"})
        producer.produce(bench.topic, value, headers={k: v.encode() for k, v in headers.items()})
        assert producer.flush(WAIT) == 0

    send("newer", OLD)
    eventually(lambda: bench.states() == {"done": 1}, WAIT)
    result = oncepool("prune", "--force", "--older-than", "30d", "--yes", "--json")
    assert answer(result)["rows"]["coalesced"] == 0
    send("older", OLD - timedelta(days=1))
    eventually(lambda: bench.states() == {"done": 1, "superseded": 1}, WAIT)
