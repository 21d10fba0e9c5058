from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from processing.maintenance.health import Health
from processing.maintenance.health_server import KEPT, HealthServer, OneScrape
from tests.support.clock import Clock
from tests.support.metrics import busy_instance, scraped

Get = Callable[..., tuple[int, str]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(10.0, clock)


@pytest.fixture
def well(health: Health) -> Health:
    health.heartbeat({"joined": True, "assigned": 3})
    health.database(up=True, detail="answers")
    health.redis(up=True, detail="answers")
    return health


def test_a_new_instance_lives_but_is_not_ready(health: Health) -> None:
    assert health.live().ok
    assert not health.ready().ok


def test_ready_once_joined_and_the_database_is_up(well: Health) -> None:
    assert well.ready().ok


@pytest.mark.parametrize("missing", [None, ("orders",)])
def test_not_ready_while_a_topic_is_missing_or_it_is_not_known(
    well: Health, missing: tuple[str, ...] | None
) -> None:
    well.heartbeat({"joined": True, "missing_topics": missing})

    assert not well.ready().ok
    assert [i.name for i in well.ready().checks if not i.ok] == ["topics"]
    assert "orders" in well.ready().as_text() or missing is None
    assert well.live().ok


def test_a_main_process_that_no_longer_beats_is_not_alive(well: Health, clock: Clock) -> None:
    clock.now += 10.1
    well.turn()

    assert not well.live().ok
    assert [i.name for i in well.live().checks if not i.ok] == ["main"]
    assert not well.ready().ok


def test_a_loop_that_no_longer_turns_is_not_alive(well: Health, clock: Clock) -> None:
    clock.now += 10.1
    well.heartbeat({"joined": True})

    assert [i.name for i in well.live().checks if not i.ok] == ["maintenance"]


def test_ready_while_idle_or_without_partitions(well: Health) -> None:
    well.heartbeat({"joined": True, "assigned": 0, "paused": True, "in_hand": 0})

    assert well.ready().ok


def test_not_ready_while_stopping_without_the_database_or_before_joining(well: Health) -> None:
    well.heartbeat({"joined": True, "stopping": True})
    assert not well.ready().ok
    assert well.live().ok

    well.heartbeat({"joined": False})
    assert not well.ready().ok

    well.heartbeat({"joined": True})
    well.database(up=False, detail="connection refused")
    assert not well.ready().ok
    assert well.live().ok


WELL = {"joined": True, "assigned": 3}


@pytest.mark.parametrize(
    "facts,reason",
    [
        ({"joined": False}, "[-] group: not joined yet"),
        ({**WELL, "missing_topics": ["orders", "bills"]}, "[-] topics: missing: orders, bills"),
        ({**WELL, "missing_topics": None}, "[-] topics: not looked at yet"),
        ({**WELL, "workers_start": False}, "[-] workers: none can start"),
        ({**WELL, "workers_connect": False}, "[-] workers: none reaches the database"),
        ({**WELL, "stopping": True}, "[-] stopping: yes"),
    ],
)
def test_the_one_reason_is_named_and_gone_with_what_caused_it(
    well: Health, facts: dict[str, object], reason: str
) -> None:
    well.heartbeat(facts)
    assert not well.ready().ok
    assert [line for line in well.ready().as_text().splitlines() if "[-]" in line] == [reason]
    well.heartbeat(WELL)
    assert well.ready().ok


def test_partitions_that_are_not_read_yet_are_only_reported(well: Health) -> None:
    waiting = {"partitions_without_start": 11, "without_start": [f"orders/{n}" for n in range(10)]}
    well.heartbeat({**WELL, **waiting})
    assert well.ready().ok
    [line] = [line for line in well.ready().as_text().splitlines() if "partitions:" in line]
    assert line.startswith("[!] partitions: 11 not read yet (no leader,")
    assert line.endswith("orders/0, " + ", ".join(waiting["without_start"][1:]) + ", ...")
    well.heartbeat(WELL)
    assert "[+] partitions: all are read" in well.ready().as_text()


@pytest.mark.parametrize(
    "facts,line",
    [
        ({**WELL, "brokers_away_for": None}, "[+] brokers: answer"),
        ({**WELL, "brokers_away_for": 36.6}, "[!] brokers: all are down, none was heard for 37 s"),
    ],
)
def test_brokers_are_only_reported(well: Health, facts: dict[str, object], line: str) -> None:
    well.heartbeat(facts)
    assert well.ready().ok
    assert line in well.ready().as_text().splitlines()


def test_brokers_that_nobody_has_asked_are_not_said_to_answer(well: Health) -> None:
    """As while the database is away at the start: the group is not joined yet."""
    told = {"joined": False, "missing_topics": None, "brokers_away_for": None}
    well.heartbeat(told)
    assert "[!] brokers: not heard from yet" in well.ready().as_text().splitlines()
    well.heartbeat({**told, "missing_topics": ()})
    assert "[+] brokers: answer" in well.ready().as_text().splitlines()


def test_redis_is_only_reported(well: Health) -> None:
    well.redis(up=False, detail="connection refused")

    answer = well.ready()

    assert answer.ok
    assert "[!] redis: connection refused" in answer.as_text()


@pytest.fixture
def get(well: Health) -> Iterator[Get]:
    server = HealthServer("127.0.0.1", 0, well)

    def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    yield ask
    server.close()


def test_endpoints_answer_200_and_503(get: Get, well: Health) -> None:
    assert get("/livez") == (200, "ok\n")
    assert get("/readyz") == (200, "ok\n")

    well.database(up=False, detail="refused")

    assert get("/livez") == (200, "ok\n")
    assert get("/readyz") == (503, "failed\n")


def test_verbose_lists_as_text_or_json(get: Get, well: Health) -> None:
    well.database(up=False, detail="refused")

    status, text = get("/readyz?verbose")
    assert status == 503
    assert "[-] database: refused" in text.splitlines()
    assert "[+] group: joined, 3 partition(s)" in text.splitlines()

    status, body = get("/readyz?verbose", accept="application/json")
    answer = json.loads(body)
    assert answer["ok"] is False
    assert {c["name"]: c["ok"] for c in answer["checks"]}["database"] is False
    assert json.loads(get("/livez", accept="application/json")[1]) == {"ok": True}


def test_metrics_are_text_where_there_are_any_and_else_it_says_how_to_get_them(
    get: Get, well: Health
) -> None:
    status, text = get("/metrics")
    assert (status, "oncepool[metrics]" in text) == (404, True)

    server = HealthServer("127.0.0.1", 0, well, lambda: busy_instance().text())
    try:
        assert any(one.name == "oncepool_requests_total" for one in scraped(server.port))
    finally:
        server.close()


def test_of_many_who_ask_for_metrics_at_once_one_has_them_made() -> None:
    now, made, busy = [0.0], [], threading.Lock()

    def scrape() -> bytes:
        assert busy.acquire(blocking=False), "two at a time"
        made.append(len(made))
        busy.release()
        return b"%d" % made[-1]

    one = OneScrape(scrape, lambda: now[0])
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _n: one(), range(50))) == {b"0"}
    now[0] = KEPT
    assert (one(), one()) == (b"1", b"1")


def test_other_paths_are_404_and_head_has_no_body(get: Get) -> None:
    assert get("/other")[0] == 404
    assert get("/livez", method="HEAD") == (200, "")


def test_a_taken_port_is_refused(well: Health) -> None:
    server = HealthServer("127.0.0.1", 0, well)
    try:
        with pytest.raises(OSError, match="in use"):
            HealthServer("127.0.0.1", server.port, well)
    finally:
        server.close()


def test_closing_lets_go_of_the_port_and_the_thread(well: Health) -> None:
    before = threading.active_count()
    server = HealthServer("127.0.0.1", 0, well)
    server.close()
    again = HealthServer("127.0.0.1", server.port, well)
    again.close()

    assert threading.active_count() <= before + 2
