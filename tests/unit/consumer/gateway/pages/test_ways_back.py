"""Pages that say no lead back to where somebody was, and say what became of what he sent."""

from __future__ import annotations

import httpx
import pytest

from consumer.gateway.pages.sessions import COOKIE
from feedback.contract.states import State
from processing.cluster.limits import MOST, MOST_WORKERS
from tests.support.gateway import FakeJournal, key
from tests.support.pages import request_row, token
from tests.support.visitors import READER, keyed, log_in, made


@pytest.mark.parametrize(
    "place,sent,referer,back",
    [
        ("/requests/do", {"back": "/requests?state=dead"}, "", "%2Frequests%3Fstate%3Ddead"),
        ("/limits", {}, "http://localhost/ui/limits?x=1", "%2Flimits%3Fx%3D1"),
        ("/requests/do", {"back": "//evil.example"}, "http://localhost/ui/requests/r1",
         "%2Frequests%2Fr1"),
        ("/requests/do", {}, "http://localhost/ui/requests/ask", ""),
        ("/limits", {}, "http://localhost/elsewhere", ""),
        ("/limits", {}, "http://[", ""),
    ],
)  # fmt: skip
def test_a_form_after_the_end_of_a_login_leads_back_to_its_page(
    place: str, sent: dict[str, str], referer: str, back: str
) -> None:
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        headers = {"referer": referer} if referer else {}
        given = {"action": "retry", "ids": "r1"} | sent
        led = await http.post(f"/ui{place}", data=given, headers=headers)
        assert led.status_code == 303
        assert led.headers["location"] == f"/ui/login?next={back}&undone=1"
        page = (await http.get(led.headers["location"])).text
        assert "nothing was changed" in page
        assert "nothing was changed" not in (await http.get("/ui/login")).text
        assert 'name="next" value="/' in page

    bench.run(scenario)
    assert not bench.mover.asked


def test_a_login_speaks_of_the_key_and_not_of_a_header() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for short in ("", "short", " "):
            answer = await log_in(http, short)
            assert answer.status_code == 401
            assert "this is no API key" in answer.text
            assert "Authorization" not in answer.text

    keyed().run(scenario)


def test_a_problem_has_the_navigation_of_who_is_logged_in_and_a_way_back() -> None:
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        nobody = (await http.get("/ui/nothing-here")).text
        assert "<nav" not in nobody
        await log_in(http)
        page = (await http.get("/ui/requests")).text
        given = {"token": token(page), "action": "burn", "back": "/requests?state=dead"}
        refused = await http.post("/ui/requests/do", data=given)
        assert refused.status_code == 400
        assert 'href="/ui/requests?state=dead"' in refused.text
        other = await http.post("/ui/limits", data=given | {"token": "x"})
        missing = await http.get(
            "/ui/nothing-here", headers={"referer": "http://localhost/ui/audit"}
        )
        assert 'href="/ui/audit">Back' in missing.text
        for code, answer in ((400, refused), (403, other), (404, missing)):
            assert answer.status_code == code
            assert "<nav" in answer.text
            assert "Log out" in answer.text
        assert token(missing.text) == token(page)

    bench.run(scenario)


def test_a_problem_page_counts_as_no_call_of_its_own() -> None:
    slow = made(gateway_keys={"slow": key("read", token=READER, rate=0.001)})

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http, READER)
        answer = await http.get("/ui/requests")
        while answer.status_code == 200:
            answer = await http.get("/ui/requests")
        assert answer.status_code == 429
        assert "Log out" in answer.text
        assert COOKIE in http.cookies

    slow.run(scenario)


def test_of_what_is_in_the_outbox_alone_the_page_says_so() -> None:
    bench = made()
    outbox = FakeJournal()
    bench.parts.statuses._outbox = outbox
    outbox.put("k", State.ACCEPTED, code="unsent")
    outbox.put("late", State.ACCEPTED, code="unanswered")
    bench.pages_journal.rows = []

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/requests/k")).text
        assert "it is in the outbox, and a relay has not sent it" in page
        assert "None" not in page
        assert "oncepool outbox retry" in (await http.get("/ui/requests/late")).text

    bench.run(scenario)


def test_what_has_ended_in_the_journal_runs_no_more() -> None:
    """Instances tell every few seconds what they run."""
    bench = made()
    one = bench.services.found.instances[0]["running_requests"][0]["request_id"]  # type: ignore[index]
    name = one.replace("/script", "%2Fscript").replace(" ", "%20")

    async def scenario(http: httpx.AsyncClient) -> None:
        for state, runs in (("failed", True), ("cancelled", False), ("done", False)):
            bench.pages_journal.rows = [request_row(one, state)]
            page = (await http.get(f"/ui/requests/{name}")).text
            assert ("Runs right now" in page) is runs
            assert ('value="cancel"' in page) is runs

    bench.run(scenario)


@pytest.mark.parametrize("figure,most", [("total", MOST), ("workers", MOST_WORKERS)])
def test_a_limit_that_is_too_large_is_told_the_largest(figure: str, most: int) -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        sent = {"token": token((await http.get("/ui/limits")).text), "type": "a.b"}
        action = "set" if figure == "total" else "all"
        for text in ("9" * 9, "9" * 12, "9" * 5000, "0", "x"):
            answer = await http.post("/ui/limits", data=sent | {"action": action, figure: text})
            assert answer.status_code == 400
            assert f"a whole number from 1 to {most}" in answer.text

    bench.run(scenario)
    assert not bench.board.changes
