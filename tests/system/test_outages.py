"""The whole service while a service that it needs is away: nothing lost, nothing run twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer.admin.overview import look
from consumer.config.settings import Settings
from stack import Stack
from tests.support.metrics import scraped
from tests.support.service import WAIT, Bench, Callers, Raw, bench_on
from tests.support.waiting import eventually

pytestmark = pytest.mark.long  # the chaos run takes the services away in all these ways

BURST = 500
MALFORMED = 5


@pytest.fixture
def bench(own_stack: Stack, tmp_path: Path) -> Iterator[Bench]:
    with bench_on(own_stack, tmp_path) as made:
        yield made


def submit(bench: Bench, ids: list[str], kind: str, payload: object) -> None:
    for request in ids:
        bench.client.submit(kind, payload, request_id=request)
    bench.client.flush()


def settle(bench: Bench, ids: list[str], kind: str, payload: object) -> None:
    """Sends all of these again: every one is done."""
    submit(bench, ids, kind, payload)
    for request in ids:
        assert bench.client.wait(request, WAIT).state == "done"


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_the_database_goes_and_comes_back(
    bench: Bench, own_stack: Stack, tmp_path: Path, kill: bool
) -> None:
    instance = bench.start(ONCEPOOL_MAX_IN_HAND="200", ONCEPOOL_GRACE="3")
    callers = Callers(bench, threads=5)
    callers.answered(30)
    ids = [f"paced-{n}" for n in range(400)]
    payload = {"table": bench.table, "seconds": 0.05, "until": str(tmp_path / "it is back")}
    submit(bench, ids[:100], "paced", payload)
    raw = Raw(bench)
    for _ in range(MALFORMED):
        raw.send(None, {"ce_type": b"paced"}, b"{}")
    submit(bench, ids[100:], "paced", payload)
    eventually(lambda: bench.query(f"SELECT 1 FROM {bench.schema}.requests WHERE type = 'paced'"))

    own_stack.stop_database(kill=kill)
    # What was in hand is answered, or kept where a COMMIT may have landed: one chunk a worker.
    eventually(lambda: "database" in bench.said()["paused"], WAIT, lambda: instance.log)
    eventually(lambda: bench.said()["in_hand"] <= 10, WAIT, lambda: str(bench.facts()))
    answered = bench.statuses(ids)
    refused = [s for s in answered if s is not None and s.state == "failed"]
    assert refused
    assert {s.code for s in refused} == {"database_unavailable"}
    status, items = instance.health("/readyz")
    assert (status, items["database"]) == (503, False)
    assert instance.health("/livez")[0] == 200
    # Intake is closed: the rest, and what producers send again, stays where it is.
    waiting = bench.waiting()
    assert waiting > 0
    eventually(lambda: bench.waiting() > waiting, WAIT)
    assert bench.said()["in_hand"] <= 10

    if kill:
        # What nobody sends again is not lost with an instance that cannot write it down.
        instance.stop()
        instance = bench.start(ONCEPOOL_MAX_IN_HAND="200", wait=False)
    own_stack.start_database()
    instance.says("running" if kill else "intake opens")
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT)
    callers.answered(50)
    (tmp_path / "it is back").touch()
    settle(bench, ids, "paced", payload)
    bench.check_books(callers.end() | set(ids))
    assert bench.states().keys() == {"done"}
    places = "count(DISTINCT (partition, kafka_offset))"
    letters = f"SELECT count(*), {places} FROM {bench.schema}.dead_letters"
    eventually(lambda: bench.query(letters) == [(MALFORMED, MALFORMED)], WAIT, lambda: instance.log)
    assert instance.stop() == 0


def test_the_result_of_an_effect_outside_is_written_once_the_database_is_back(
    bench: Bench, own_stack: Stack, tmp_path: Path
) -> None:
    file = tmp_path / "charged"
    instance = bench.start()
    request = bench.charging(file, 2)
    own_stack.stop_database(kill=True)
    instance.says("database away")
    eventually(lambda: file.read_text() == "charged\n", WAIT)
    own_stack.start_database()
    assert bench.client.wait(request, WAIT).state == "done"
    payload = {"file": str(file), "seconds": 2}
    again = bench.client.call("charges", payload, request_id=request, timeout=WAIT)
    assert again.state == "done"
    assert file.read_text() == "charged\n"


@pytest.mark.parametrize("fault", ["stopped", "paused"])
def test_redis_away_fails_nothing(bench: Bench, own_stack: Stack, fault: str) -> None:
    instance = bench.start()
    payload = {"table": bench.table}
    settle(bench, ["warm"], "effect", payload)
    ids = ["warm"]

    def burst(name: str) -> None:
        """Sends so many more, and waits until all are done."""
        more = [f"{name}-{n}" for n in range(BURST)]
        ids.extend(more)
        submit(bench, more, "effect", payload)
        eventually(lambda: bench.done() == len(ids), WAIT, lambda: instance.log)

    burst("before")
    if fault == "stopped":
        own_stack.stop_redis()
    else:
        own_stack.pause_redis()
    burst("first")  # the producer and the workers find out
    burst("during")
    eventually(lambda: not instance.health("/readyz")[1]["redis"], WAIT)
    assert instance.health("/readyz")[0] == 200

    own_stack.heal()
    eventually(lambda: instance.health("/readyz")[1]["redis"], WAIT)
    settle(bench, ids, "effect", payload)
    bench.check_books(set(ids))
    assert bench.states() == {"done": len(ids)}
    assert instance.stop() == 0


def values(port: int, name: str) -> list[float]:
    """What an instance shows at its port under this name; nothing where that is absent."""
    return [one.value for one in scraped(port) if one.name == f"oncepool_{name}"]


def problems(bench: Bench) -> dict[str, str]:
    """What the instances themselves say is wrong."""
    url, prefix = (bench.environment[f"ONCEPOOL_REDIS_{name}"] for name in ("URL", "PREFIX"))
    return look(Settings(redis_url=url, redis_prefix=prefix), 60, {"instances"}).problems


def test_the_broker_goes_and_comes_back(bench: Bench, own_stack: Stack) -> None:
    instance = bench.start()
    callers = Callers(bench)
    callers.answered(100)
    workers = set(instance.workers())

    def all_well() -> dict[str, bool] | None:
        """Once the maintenance process has heard of all that callers know already."""
        status, found = instance.health("/readyz")
        return found if status == 200 and all(found.values()) else None

    well = eventually(all_well, WAIT)
    assert well is not None

    own_stack.stop_broker()
    instance.says("broker connection")
    assert instance.health("/livez")[0] == 200
    # That decides nothing: an instance that is not ready would help nobody.
    eventually(lambda: instance.health("/readyz") == (200, {**well, "brokers": False}), WAIT)
    port = instance.health_port
    # As `oncepool stats` and the gateway's overview have it.
    eventually(lambda: "no Kafka broker" in str(problems(bench)), WAIT, lambda: str(bench.said()))
    assert [values(port, n) for n in ("brokers_up", "ready", "consumer_lag")] == [[0], [1], []]

    own_stack.start_broker()
    callers.answered(200)
    eventually(lambda: instance.health("/readyz") == (200, well), WAIT)
    assert (values(port, "brokers_up"), len(values(port, "consumer_lag"))) == ([1], 1)
    bench.check_books(callers.end())
    assert bench.states().keys() == {"done"}
    assert set(instance.workers()) == workers
    assert instance.stop() == 0
