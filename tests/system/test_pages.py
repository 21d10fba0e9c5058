"""The gateway's pages in a real browser, with real services and a real consumer behind them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from consumer.config.gateway_keys import hash_of
from tests.support import eventually
from tests.support.browser import Reader, browser_program, reader, started
from tests.support.gateway import KEY
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.journal import Journal
from tests.support.prefix_proxy import PrefixProxy
from tests.support.service import Bench

READER = "a-reading-key-of-forty-characters-for-te"
PREFIX = "/before/oncepool"
PAGES = ("/", "/requests", "/requests/dead%2F1", "/dead-letters", "/dead-letters/{letter}",
         "/limits", "/schedules", "/oddities", "/audit")  # fmt: skip
_AXE = """async () => {
    const found = await axe.run();
    return [found.passes.length, found.violations
        .filter((one) => ["serious", "critical"].includes(one.impact))
        .map((one) => one.id + ": " + one.nodes.map((node) => node.html).join("; "))];
}"""

_AN_HOUR_OF_ENDS = """INSERT INTO {s}.counters (minute, n, type, state, code)
    SELECT date_trunc('minute', now()) - m * interval '1 minute', 600 + m * 7 %% 11 * 60, type,
           'done', 'ok'
    FROM generate_series(1, 59) m, unnest(ARRAY['effect', 'paced']) type"""
_AN_HOUR_OF_ROWS = """INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition,
        kafka_offset, produced_at, created_at, finished_at, run, resends, superseded_by, reference)
    SELECT 'past-' || n, 'paced', CASE WHEN n %% 5 = 0 THEN 'superseded' ELSE 'done' END, 'ok',
           'transaction', 'old', 0, n, at - n %% 7 * interval '50 ms', at,
           at + (20 + n %% 9 * 30) * interval '1 ms', 1, CASE n %% 60 WHEN 1 THEN n / 60 ELSE 0 END,
           CASE WHEN n %% 5 = 0 THEN 'past-' || n / 30 * 30 + 1 END, 'parcel ' || n / 30
    FROM (SELECT n, now() - n * interval '12 s' AS at FROM generate_series(10, 290) n) past"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright", reason="scripts/setup installs playwright")
    program = browser_program()
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    with started(program) as one:
        yield one


def complaints(who: Reader) -> list[str]:
    """What axe-core finds serious of the page that is open."""
    who.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    passes, found = who.page.evaluate(_AXE)
    assert passes > 5
    return [f"{who.page.url}: {one}" for one in found]


def test_an_operator_at_work(bench: Bench, browser: Any, tmp_path: Path) -> None:
    keys = {
        "ops": {"hash": hash_of(KEY), "roles": ["read", "operate"]},
        "reader": {"hash": hash_of(READER), "roles": ["read"]},
    }
    journal = Journal(bench.database, bench.schema)
    payload = json.dumps({"table": bench.table, "password": "hunter2"}).encode()
    journal.put("dead/1", type="effect", payload=payload)
    journal.put("dead/2", type="effect", payload=payload)
    journal.put("other", type="raises")
    place = {"topic": bench.topic, "partition": 0, "kafka_offset": 10**6, "produced_at": "now"}
    journal.insert("dead_letters", reason="conflict", request_id="other", payload=b"2", **place)
    clock = {"cron": "0 6 * * *", "tz": "Europe/Oslo", "missed": "latest", "decided_until": "now"}
    journal.insert("schedules", name="nightly", type="effect", **clock)
    journal.run(_AN_HOUR_OF_ENDS)
    journal.run(_AN_HOUR_OF_ROWS)
    journal.close()
    bench.start(ONCEPOOL_WORKERS="1")
    with (
        GatewayProcess(
            bench.environment,
            tmp_path / "gateway.log",
            gateway_keys=json.dumps(keys),
            gateway_root_path=PREFIX,
        ) as gateway,
        PrefixProxy(gateway.address, PREFIX) as proxy,
    ):
        root = f"{proxy.origin}{PREFIX}/ui"
        letters = bench.query(f"SELECT id FROM {bench.schema}.dead_letters")
        pages = [path.format(letter=letters[0][0]) for path in PAGES]
        with reader(browser, root) as ops:
            ops.open("/login")
            found = complaints(ops)
            ops.log_in(KEY)
            retries_a_dead_one(ops, bench)
            found += retries_all_that_match(ops, bench)
            cancels_a_running_one(ops, bench)
            pauses_a_schedule(ops, bench)
            pauses_what_refreshes(ops)
            assert found + look_at_all(ops, pages) == []
            assert ops.said == []
        with reader(browser, root, "dark") as other:
            other.open("/login")
            found = complaints(other)
            other.log_in(READER)
            assert found + look_at_all(other, pages) == []
            assert other.said == []
            changes_nothing(other)
            assert other.open("/requests/nobody").status == 404
            assert complaints(other) == []
    assert "Traceback" not in gateway.log


def retries_a_dead_one(ops: Reader, bench: Bench) -> None:
    page = ops.page
    page.click("text=Requests")
    page.select_option("[name=state]", "dead")
    page.fill("[name=type]", "eff*")
    page.press("[name=type]", "Enter")
    page.wait_for_url("**/requests?state=dead&type=eff*")
    assert page.locator("tbody tr").count() == 2
    page.click("text=dead/1")
    shown = ops.text()
    assert "ValueError: boom" in shown
    assert "hunter2" not in shown
    page.click("button:has-text('Run again')")
    page.fill("[name=why]", "mended")
    page.press("[name=why]", "Enter")
    page.wait_for_selector("text=1 moved")
    page.click("main >> text=Back")
    # Without a reload.
    page.wait_for_selector(".state-done")
    assert "by gateway:ops: mended" in ops.text()
    assert bench.query(f"SELECT id FROM {bench.table}") == [("dead/1",)]


def retries_all_that_match(ops: Reader, bench: Bench) -> list[str]:
    """With the keyboard alone; what axe-core says of the pages that ask and tell."""
    page = ops.page
    ops.open("/requests?state=dead&type=eff*")
    page.press("[name=all]", "Space")
    page.press("button:has-text('Run again')", "Enter")
    page.wait_for_selector("[name=why]")
    assert "Run again: 1 entry (state dead, type eff*)?" in ops.text()
    found = complaints(ops)
    page.press("[name=why]", "Enter")
    page.wait_for_selector("text=1 moved")
    found += complaints(ops)
    eventually(lambda: len(bench.query(f"SELECT id FROM {bench.table}")) == 2, WAIT)
    ops.open("/audit")
    assert page.locator("tbody tr").count() == 2
    return found


def cancels_a_running_one(ops: Reader, bench: Bench) -> None:
    page = ops.page
    bench.client.submit("slow", {"seconds": WAIT}, request_id="long")
    ops.open("/requests?state=running")
    page.wait_for_selector("td >> text=long")
    page.click("td >> text=long")
    page.wait_for_selector("text=Runs right now in worker")
    page.click("button:has-text('Cancel')")
    page.fill("[name=why]", "takes too long")
    page.press("[name=why]", "Enter")
    page.wait_for_selector("text=1 moved")
    status = bench.client.wait("long", WAIT)
    assert (status.state, "takes too long" in status.reason) == ("cancelled", True)
    ops.open("/audit")
    row = page.locator("tbody tr", has_text="takes too long").inner_text()
    for words in ("long", "cancel", "running", "cancelled", "gateway:ops"):
        assert words in row


def pauses_a_schedule(ops: Reader, bench: Bench) -> None:
    page = ops.page
    ops.open("/schedules")
    page.fill("[name=why]", "no paper")
    page.click("text=Pause nightly")
    page.wait_for_selector("text=nightly: paused")
    paused = f"SELECT paused_by, paused_why FROM {bench.schema}.schedules"
    assert bench.query(paused) == [("gateway:ops", "no paper")]
    page.click("text=Resume nightly")
    page.wait_for_selector("text=nightly: resumed")
    assert bench.query(paused) == [(None, None)]
    ops.open("/audit")
    for words in ("schedule nightly", "no paper", "resume"):
        assert words in ops.text()


def pauses_what_refreshes(ops: Reader) -> None:
    page = ops.page
    ops.open("/")
    page.wait_for_selector("text=as of")
    page.focus("#pause")
    page.keyboard.press("Space")
    page.wait_for_selector("#refreshed:has-text('paused')")
    ops.open("/requests")
    page.wait_for_selector("#refreshed:has-text('paused')")
    page.click("#pause")
    page.wait_for_selector("text=as of")


def look_at_all(who: Reader, pages: list[str]) -> list[str]:
    """What axe-core says of these pages."""
    found = []
    for path in pages:
        assert who.open(path).status == 200, path
        found += complaints(who)
    return found


def changes_nothing(who: Reader) -> None:
    page = who.page
    who.open("/requests/other")
    assert page.locator("button[name=action]").count() == 0
    token = page.locator("[name=token]").first.get_attribute("value")
    form = {"token": token, "action": "retry", "ids": "other"}
    origin = {"origin": who.root.removesuffix(f"{PREFIX}/ui")}
    refused = page.request.post(f"{who.root}/requests/do", form=form, headers=origin)
    assert refused.status == 403
    assert "lacks the role operate" in refused.text()
