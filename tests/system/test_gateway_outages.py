"""A gateway before a service that is cut off or says nothing: each call has its answer in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.journal import Journal
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.metrics import scrape, shown
from tests.support.outbox import new_outbox
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy
from tests.support.queries_asked import asked_in_vain
from tests.support.service import Bench
from tests.support.statuses import write
from tests.support.waiting import eventually

BOUND = 20.0
"""Seconds in which each call is answered, whatever is away."""
PROBLEM = ("application/problem+json", "urn:oncepool:problem:unavailable")
SETTINGS = {"gateway_send_timeout": "2", "grace": "10"}
SERVICES = ("redis", "database", "brokers")
NEEDED = ("brokers", "outbox")
"""To take requests."""
SHORT = {("redis", "hang"), ("database", "cut")}
"""What the run without --long tries."""
FAULTS = [
    pytest.param(
        service, fault, marks=() if (service, fault) in SHORT else pytest.mark.long,
        id=f"{service}-{fault}",
    )
    for service in SERVICES
    for fault in ("cut", "hang")
]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call: what it is answered with, and with what else while one of the services is away."""

    method: str
    path: str
    status: int
    away: dict[str, int] = field(default_factory=dict, hash=False)
    key: str = ""
    prefer: str = ""
    waits: bool = False

    def made_on(self, gateway: GatewayProcess) -> httpx.Response:
        given = {"Idempotency-Key": self.key, "Prefer": self.prefer}
        headers = {name: value for name, value in given.items() if value}
        body = {"json": {}} if self.key else {}
        return gateway.http.request(self.method, self.path, headers=headers, **body)


NO_REDIS, NO_DATABASE, NO_BROKERS = ({service: 503} for service in SERVICES)
NO_OUTBOX = {"outbox": 503}
NOT_BOTH = NO_REDIS | NO_DATABASE
"""Of what neither Redis nor the journal alone can say."""


def calls(turn: str) -> list[Call]:
    """All of a turn; what moves something moves what no other turn does."""
    return [
        Call("POST", "/requests/effect", 202, NO_BROKERS, key=f"new-{turn}"),
        Call("POST", "/requests/effect", 202, NO_BROKERS, f"late-{turn}", "wait=2", waits=True),
        # It has ended, and only the journal knows: where that is away it is sent once more.
        Call("POST", "/requests/effect", 200, {"database": 202}, key="ended"),
        Call("GET", "/requests/journaled", 200, NO_DATABASE),
        Call("GET", "/requests/told", 200, NO_REDIS),
        Call("GET", "/requests/nobody", 404, NOT_BOTH),
        Call("GET", "/requests/nobody?wait=2", 404, NOT_BOTH, waits=True),
        Call("GET", "/requests/later?wait=2", 200, NO_DATABASE, waits=True),
        Call("GET", "/requests?id=journaled&id=later", 200, NO_DATABASE),
        Call("GET", "/requests?id=told&id=journaled", 200, NOT_BOTH),
        Call("POST", f"/requests/dead-{turn}/retry", 200, NO_DATABASE),
        Call("POST", f"/requests/waits-{turn}/cancel", 200, NO_DATABASE),
        Call("POST", "/requests/nobody/retry", 404, NOT_BOTH),
        Call("POST", "/requests/nobody/cancel", 404, NOT_BOTH),
        # No instance runs it, as Redis says.
        Call("POST", "/requests/runs/cancel", 409, NOT_BOTH),
        Call("GET", "/dead-letters", 200, NO_DATABASE),
        Call("GET", "/livez", 200),
        # Pages, of which some say themselves what they could not look at.
        Call("GET", "/ui/", 200),
        Call("GET", "/ui/requests", 200, NO_DATABASE),
        Call("GET", "/ui/requests?state=running", 200, NO_DATABASE),
        Call("GET", "/ui/requests/journaled", 200, NO_DATABASE),
        Call("GET", "/ui/requests/told", 200, NOT_BOTH),
        Call("GET", "/ui/dead-letters", 200, NO_DATABASE),
        Call("GET", "/ui/limits", 200, NO_REDIS),
        Call("GET", "/ui/schedules", 200, NO_DATABASE),
        Call("GET", "/ui/oddities", 200),
        Call("GET", "/ui/audit", 200),
    ]


def calls_with_an_outbox(turn: str) -> list[Call]:
    """The same where requests go into an outbox, which knows those that nobody has run."""
    return [
        Call("POST", "/requests/effect", 202, NO_OUTBOX, key=f"new-{turn}"),
        Call("POST", "/requests/effect", 202, NO_OUTBOX, f"late-{turn}", "wait=2", waits=True),
        Call("POST", "/requests/effect", 202, NO_OUTBOX, key="kept"),
        Call("GET", "/requests/kept", 200, NO_OUTBOX),
        Call("GET", "/requests/kept?wait=2", 200, NO_OUTBOX, waits=True),
        Call("GET", "/requests?id=kept&id=kept", 200, NO_OUTBOX),
        Call("GET", "/requests/nobody", 404, NOT_BOTH | NO_OUTBOX),
        Call("GET", "/requests?id=kept&id=told", 200, NO_OUTBOX | NO_REDIS),
        Call("GET", "/ui/", 200),
    ]


def fill(bench: Bench, journal: Journal) -> None:
    """Rows and statuses that the calls are about."""
    for name in ("journaled", "ended"):
        journal.put(name, "done", type="effect", code="ok", error=None, payload=None)
    journal.put("later", "waiting", due_at="2031-01-01")
    journal.put("runs", "running", effect="external", token="i:1", lease_until="2031-01-01")
    for turn in ("before", "away", "after"):
        journal.put(f"dead-{turn}")
        journal.put(f"waits-{turn}", "waiting", due_at="2031-01-01")
    prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
    store = RedisStatusStore(bench.stack.redis, prefix, timeout=WAIT)
    store.write([write("told", State.DONE, ttl=3600, final=True)])
    store.close()


@contextmanager
def before_all(bench: Bench) -> Iterator[tuple[dict[str, Proxy], dict[str, str]]]:
    """A proxy before each service, and settings that lead to them."""
    with ExitStack() as opened:
        proxies = {
            "redis": opened.enter_context(Proxy.of(bench.stack.redis)),
            "database": opened.enter_context(Proxy.of(bench.database)),
            "brokers": opened.enter_context(LoneBrokerProxy.of(bench.stack.kafka)),
        }
        yield (
            proxies,
            bench.environment
            | {
                "ONCEPOOL_REDIS_URL": proxies["redis"].before(bench.stack.redis),
                "ONCEPOOL_DATABASE_URL": proxies["database"].before(bench.database),
                "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{proxies['brokers'].port}",
            },
        )


def all_at_once(gateway: GatewayProcess, made: list[Call]) -> list[tuple[Call, httpx.Response]]:
    """The answers, each of which comes in time."""

    def answered(call: Call) -> tuple[float, httpx.Response]:
        begun = time.monotonic()
        answer = call.made_on(gateway)
        return time.monotonic() - begun, answer

    with ThreadPoolExecutor(len(made)) as pool:
        found = dict(zip(made, pool.map(answered, made), strict=True))
    late = {call.path: seconds for call, (seconds, _) in found.items() if seconds > BOUND}
    assert not late, gateway.log
    return [(call, answer) for call, (_, answer) in found.items()]


def says_when_to_come_again(call: Call, answer: httpx.Response) -> None:
    """As a page, or as a problem document."""
    assert int(answer.headers["Retry-After"]) >= 1, call
    if call.path.startswith("/ui/"):
        assert answer.headers["content-type"].startswith("text/html")
    else:
        assert (answer.headers["content-type"], answer.json()["type"]) == PROBLEM, call
    if call.key:
        assert answer.json()["id"] == call.key


def works(gateway: GatewayProcess, made: list[Call]) -> None:
    """All of it, as soon as everybody is back."""
    eventually(lambda: is_ready(gateway), WAIT)
    for call in made:
        if not call.waits:
            eventually(
                lambda call=call: call.made_on(gateway).status_code == call.status,
                WAIT,
                lambda call=call: f"{call}\n{gateway.log}",
            )


def is_ready(gateway: GatewayProcess) -> bool:
    return gateway.http.get("/readyz").status_code == 200


def has_answers(gateway: GatewayProcess, service: str, made: list[Call]) -> None:
    """To all of these calls, while this service is away."""
    for call, answer in all_at_once(gateway, made):
        wanted = call.away.get(service, call.status)
        assert answer.status_code == wanted, f"{call}: {answer.text}"
        if wanted == 503:
            says_when_to_come_again(call, answer)
    eventually(lambda: is_ready(gateway) is (service not in NEEDED), WAIT)


@pytest.mark.parametrize("service,fault", FAULTS)
def test_a_service_that_is_away_keeps_no_call_and_is_used_again(
    bench: Bench, journal: Journal, tmp_path: Path, service: str, fault: str
) -> None:
    fill(bench, journal)
    with (
        before_all(bench) as (proxies, environment),
        GatewayProcess(environment, tmp_path / "gateway.log", **SETTINGS) as gateway,
    ):
        works(gateway, calls("before"))
        break_it = getattr(proxies[service], fault)
        break_it()
        has_answers(gateway, service, calls("away"))
        port = gateway.address[1]
        assert shown(port, "oncepool_gateway_requests_total", status="503") > 0
        assert asked_in_vain(scrape(port)) == set()

        proxies[service].mend()
        works(gateway, calls("after"))
        break_it()
        assert gateway.stop() == 0, gateway.log
        assert "Traceback" not in gateway.log


@pytest.mark.long
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", ["cut", "hang"])
def test_it_begins_without_one_of_them_as_well(
    bench: Bench, journal: Journal, tmp_path: Path, service: str, fault: str
) -> None:
    """Nothing is connected or known yet, and no page has an older look to show."""
    fill(bench, journal)
    with before_all(bench) as (proxies, environment):
        getattr(proxies[service], fault)()
        with GatewayProcess(environment, tmp_path / "gateway.log", **SETTINGS) as gateway:
            has_answers(gateway, service, calls("away"))
            proxies[service].mend()
            works(gateway, calls("after"))
            assert gateway.stop() == 0, gateway.log
            assert "Traceback" not in gateway.log


@pytest.mark.long
@pytest.mark.parametrize("service", ["redis", "database", "outbox"])
@pytest.mark.parametrize("fault", ["cut", "hang"])
def test_with_an_outbox_that_alone_is_needed_to_take_requests(
    bench: Bench, journal: Journal, own_database: OwnDatabase, tmp_path: Path, service: str,
    fault: str,
) -> None:  # fmt: skip
    fill(bench, journal)
    with (
        new_outbox(own_database.url, "gate_outbox") as outbox,
        Proxy.of(outbox.url) as proxy,
        before_all(bench) as (proxies, environment),
    ):
        proxies |= {"outbox": proxy}
        more = {
            "gateway_outbox": "on",
            "outbox_database_url": proxy.before(outbox.url),
            "outbox_schema": outbox.schema,
        }
        proxies["brokers"].cut()
        log = tmp_path / "gateway.log"
        with GatewayProcess(environment, log, **SETTINGS, **more) as gateway:
            works(gateway, calls_with_an_outbox("before"))
            getattr(proxies[service], fault)()
            has_answers(gateway, service, calls_with_an_outbox("away"))
            proxies[service].mend()
            works(gateway, calls_with_an_outbox("after"))
            assert gateway.stop() == 0, gateway.log
            assert "Traceback" not in gateway.log
