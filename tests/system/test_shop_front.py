"""The shop over HTTP with the services that it is for: what a browser gets, and what is there."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from feedback.journal.migrations import migrate
from stack import Stack
from tests.support.own_database import OwnDatabase
from tests.support.programs import started
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]

WHEREABOUTS = "/oncepool/requests/web-7"


@pytest.fixture
def bench(
    stack: Stack, own_database: OwnDatabase, topic: Callable[..., str], prefix: str, group: str,
    tmp_path: Path,
) -> Iterator[Bench]:  # fmt: skip
    """With a database of its own, as others run the shop as well and count its rows."""
    migrate(own_database.url, "journal")
    made = Bench(stack, topic(), "journal", prefix, group, tmp_path, database=own_database.url)
    made.environment |= {
        "ONCEPOOL_APP": "examples.shop.app:app",
        "ONCEPOOL_KAFKA_TOPIC": made.environment["ONCEPOOL_KAFKA_TOPICS"],
    }
    yield made
    made.close()


@pytest.fixture
def browser(bench: Bench, tmp_path: Path) -> Iterator[httpx.Client]:
    """Of a front that is started as it says, without a consumer."""
    log = tmp_path / "front.log"
    factory = "examples.shop.front:make_front"
    server = ["uvicorn", "--factory", factory, "--port", "0"]
    front = started(*server, environment=bench.environment, log=log)
    try:
        found = eventually(
            lambda: re.search(r"running on (http://\S+)", log.read_text()), WAIT, log.read_text
        )
        assert found is not None
        with httpx.Client(base_url=found[1], timeout=WAIT) as client:
            yield client
        front.send_signal(signal.SIGTERM)
        assert front.wait(WAIT) in {0, -signal.SIGTERM}, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        front.kill()
        front.wait(WAIT)


def order(article: str, count: int = 1) -> dict[str, Any]:
    return {"customer": "ann", "lines": [{"article": article, "count": count}]}


def put(browser: httpx.Client, number: int, body: dict[str, Any]) -> httpx.Response:
    """As a browser does it: the same again for as long as the end is not known."""
    answers: list[httpx.Response] = []

    def known() -> bool:
        answers.append(browser.put(f"/orders/{number}", json=body))
        return answers[-1].status_code not in {202, 503}

    eventually(known, WAIT, lambda: answers[-1].text)
    return answers[-1]


def test_a_browser_s_order_is_placed_once_and_its_request_found(
    bench: Bench, browser: httpx.Client
) -> None:
    # Nobody runs it: not known, and where more can be learnt. The gateway knows it by then.
    early = browser.put("/orders/7", json=order("mug", 2))
    assert (early.status_code, early.json()) == (202, {"state": "unknown"})
    assert early.headers["Location"] == WHEREABOUTS
    assert browser.get(WHEREABOUTS).json()["state"] == "accepted"

    bench.start()
    placed = put(browser, 7, order("mug", 2))
    assert (placed.status_code, placed.json()["total_cents"]) == (201, 2580)
    again = put(browser, 7, order("mug", 2))
    assert (again.status_code, again.json()) == (201, placed.json())
    assert browser.get(WHEREABOUTS).json()["result"] == placed.json()

    another = put(browser, 7, order("mug", 3))
    assert (another.status_code, another.json()) == (409, {"code": "another_order"})
    refused = put(browser, 8, order("unicorn"))
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_article")
    last = [put(browser, n, order("last-one")).status_code for n in (9, 10)]
    assert last == [201, 422]

    orders = bench.query("SELECT request_id, total_cents FROM shop.orders ORDER BY order_id")
    assert orders == [("web-7", 2580), ("web-9", 9900)]
    page = browser.get("/oncepool/ui/requests")
    assert page.status_code == 200
    assert "web-9" in page.text
