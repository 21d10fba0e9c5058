from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from consumer.admin.moving import Ending
from consumer.gateway.pages.sessions import COOKIE
from feedback.contract.states import State
from feedback.journal.rows import headers_json
from tests.support.gateway import KEY, bearer, key
from tests.support.pages import AT, fields, fields_of, request_row, token
from tests.support.visitors import PAGES, READER, SOME, keyed, log_in, made


def test_nobody_looks_without_a_login() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        for path in PAGES:
            answer = await http.get(f"/ui{path}")
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/ui/login?next=")
        part = await http.get("/ui/", headers={"X-Oncepool-Fragment": "1"})
        assert part.status_code == 401
        assert (await http.post("/ui/requests/do", data={})).status_code == 303
        # An API key in a header is for programs: forms of other sites could not send it, pages do.
        assert (await http.get("/ui/", headers=bearer())).status_code == 303

        wrong = await log_in(http, KEY[:-1] + "x")
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        assert 'error="invalid_token"' in wrong.headers["WWW-Authenticate"]
        place = "/requests?state=dead&type=a%2Fb"
        login = await http.get("/ui/requests?state=dead&type=a%2Fb")
        assert login.headers["location"] == (
            "/ui/login?next=%2Frequests%3Fstate%3Ddead%26type%3Da%252Fb"
        )
        right = await log_in(http, place=place)
        assert (right.status_code, right.headers["location"]) == (303, f"/ui{place}")
        said = right.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=strict" in said
        assert "path=/ui" in said
        assert "secure" not in said
        assert KEY.lower() not in said
        assert (await http.get("/ui/")).status_code == 200
        two = {"X-Forwarded-Proto": "https, http"}  # of two proxies
        again = await http.post("/ui/login", data={"key": KEY, "next": "/"}, headers=two)
        assert "; secure" in again.headers["set-cookie"].lower()

        # A link of another site does not bring the cookie; a page of ours leads on.
        http.cookies.clear()
        linked = await http.get(
            "/ui/requests/a%2F%22?x=1&y", headers={"sec-fetch-site": "cross-site"}
        )
        assert linked.status_code == 200
        assert 'content="0; url=/ui/requests/a%2F%22?x=1&amp;y"' in linked.text

    keyed().run(scenario)


def with_query(scope: dict[str, Any]) -> dict[str, Any]:
    """As some hosts have it: `raw_path` is all of the request's target."""
    return scope | {"raw_path": scope["raw_path"] + b"?" + scope["query_string"]}


def without_raw_path(scope: dict[str, Any]) -> dict[str, Any]:
    """As ASGI allows: the path is decoded, and nothing tells how it was written."""
    return {name: value for name, value in scope.items() if name != "raw_path"}


@pytest.mark.parametrize("hosted", [with_query, without_raw_path])
def test_whatever_the_host_a_login_comes_back_to_the_page_that_was_asked_for(hosted: Any) -> None:
    bench = keyed()
    app: Any = bench.app

    async def host(scope: Any, receive: Any, send: Any) -> None:
        await app(hosted(scope), receive, send)

    async def scenario(http: httpx.AsyncClient) -> None:
        login = await http.get("/ui/requests/a%3Fb?x=1")
        assert login.headers["location"] == "/ui/login?next=%2Frequests%2Fa%253Fb%3Fx%3D1"

    bench.app = host  # type: ignore[assignment]
    bench.run(scenario)


@pytest.mark.parametrize(
    "place", ["https://a.example/", "//a.example", "/\\a.example", "x", "/ \n"]
)
def test_a_login_leads_to_no_other_site(place: str) -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await log_in(http, place=place)).headers["location"] == "/ui/"

    keyed().run(scenario)


def test_a_cookie_ends_with_its_time_its_key_and_its_logout() -> None:
    bench = keyed(gateway_session_secret="s" * 32)
    other = made(gateway_keys={"ops": key("read", token=READER)}, gateway_session_secret="s" * 32)

    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await log_in(http)).status_code == 303
        cookie = http.cookies[COOKIE]
        http.cookies.clear()
        ends, mac, name = cookie.split(".", 2)
        later = f"{int(ends) + 1}.{mac}.{name}"
        for broken in (later, f"{ends}.{mac}.reader", f"{ends}..{name}", "", "a", f"é.{mac}.ops"):
            http.headers["cookie"] = f"{COOKIE}={broken}"
            assert (await http.get("/ui/")).status_code == 303, broken
        http.headers["cookie"] = f"{COOKIE}={cookie}"
        page = await http.get("/ui/")
        assert page.status_code == 200
        assert bench.parts.pages is not None
        bench.parts.pages.sessions._clock = lambda: float(ends)
        assert (await http.get("/ui/")).status_code == 303
        assert other.parts.pages is not None
        assert other.parts.pages.sessions.caller(cookie) is None
        bench.parts.pages.sessions._clock = lambda: float(ends) - 1
        out = await http.post("/ui/logout", data={"token": token(page.text)})
        assert (out.status_code, out.headers["location"]) == (303, "/ui/login")
        assert 'oncepool_session=""' in out.headers["set-cookie"]

    bench.run(scenario)


@pytest.mark.timeout(30)  # of minutes, where a look at it grows with the square of its length
def test_a_long_cookie_of_anybody_takes_no_time() -> None:
    async def scenario(http: httpx.AsyncClient) -> None:
        quoted = '"' + 31_000 * '\\"' + '"'
        for name in (COOKIE, "of-another-site"):
            http.headers["cookie"] = f"{name}={quoted}"
            for _ in range(25):
                assert (await http.get("/ui/")).status_code == 303
                assert (await http.post("/requests/a.b")).status_code == 401
        http.headers.pop("cookie")
        assert (await log_in(http)).status_code == 303
        mine = f"{COOKIE}={http.cookies[COOKIE]}"
        http.cookies.clear()
        http.headers["cookie"] = f'a={quoted[:9]}"; {mine}; b="c;d"'
        assert (await http.get("/ui/")).status_code == 200

    keyed().run(scenario)


def test_who_may_only_read_changes_nothing() -> None:
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        assert (await log_in(http, READER)).status_code == 303
        for path in PAGES:
            page = (await http.get(f"/ui{path}")).text
            assert 'name="action"' not in page
            assert "read only" in page
        sent = {"token": token(page), "action": "retry", "ids": "r1", "type": "a.b"}
        for path in ("/requests/ask", "/requests/do", "/dead-letters/do", "/limits"):
            assert (await http.post(f"/ui{path}", data=sent)).status_code == 403
        # Nor does he find out, search by search, what hidden fields hold.
        assert (await http.get("/ui/requests?text=4111")).status_code == 403
        assert (await http.get("/ui/dead-letters?search=4111")).status_code == 403

    bench.run(scenario)
    assert not bench.mover.asked
    assert not bench.board.changes


@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
     {"origin": "https://a.example"}, {"origin": "null"}],
)  # fmt: skip
def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http)
        page = (await http.get("/ui/requests")).text
        sent = {"token": token(page), "action": "retry", "ids": "r1"}
        assert (await http.post("/ui/requests/do", data=sent, headers=headers)).status_code == 403
        without = sent | {"token": "x"}
        assert (await http.post("/ui/requests/do", data=without)).status_code == 403
        plain = await http.post("/ui/requests/do", content=b"x", headers={"content-type": "a/b"})
        assert plain.status_code == 415

    bench.run(scenario)
    assert not bench.mover.asked


def test_one_who_is_for_some_types_sees_and_moves_those_alone() -> None:
    bench = keyed()
    bench.pages_journal.rows.append(request_row("other", type="c.d"))
    letter = bench.operator.letters[0] | {"id": 3, "type": "a.b"}
    bench.operator.letters = [letter, letter | {"id": 4, "type": "c.d"}]

    async def scenario(http: httpx.AsyncClient) -> None:
        # A request without a row may have gone under the same id: its status says nothing here.
        bench.say("r1", State.DONE, type="c.d")
        bench.say("other", State.DONE, type="a.b")
        await log_in(http, SOME)
        assert (await http.get("/ui/requests/r1")).status_code == 200
        assert (await http.get("/ui/requests/other")).status_code == 404
        page = (await http.get("/ui/requests")).text
        assert bench.pages_journal.asked[-1] == (
            "search",
            {"types": ["a.*"], "before": None},
            False,
        )
        sent = {"token": token(page), "action": "retry", "ids": "other"}
        assert (await http.post("/ui/requests/do", data=sent)).status_code == 404
        asked = (await http.post("/ui/requests/ask", data=sent | {"ids": "r1"})).text
        assert (await http.post("/ui/requests/do", data=fields(asked))).status_code == 200
        cancel = fields(asked) | {"action": "cancel"}
        asked = (await http.post("/ui/requests/ask", data=cancel)).text
        assert (await http.post("/ui/requests/do", data=fields(asked))).status_code == 200
        assert bench.mover.asked[-1][-1] == Ending(20, ("a.*",)), "of what runs his types alone"
        every = {"token": token(page), "action": "retry", "all": "1", "state": "dead"}
        asked = (await http.post("/ui/requests/ask", data=every)).text
        assert (await http.post("/ui/requests/do", data=fields(asked))).status_code == 200
        assert bench.pages_journal.asked[-1] == ("chosen", {"types": ["a.*"], "state": "dead"})
        assert (await http.get("/ui/dead-letters/4")).status_code == 404
        letters = {"token": token(page), "action": "drop", "ids": ["message:3", "message:4"]}
        asked = (await http.post("/ui/dead-letters/ask", data=letters)).text
        assert (await http.post("/ui/dead-letters/do", data=fields_of(asked))).status_code == 404
        assert bench.operator.asked == []
        letters["ids"] = "message:3"
        asked = (await http.post("/ui/dead-letters/ask", data=letters)).text
        assert (await http.post("/ui/dead-letters/do", data=fields(asked))).status_code == 200
        limit = {"token": token(page), "action": "pause", "type": "c.d"}
        assert (await http.post("/ui/limits", data=limit)).status_code == 403
        assert (await http.post("/ui/limits", data=limit | {"action": "all"})).status_code == 403
        assert "c.d" not in (await http.get("/ui/limits")).text

    bench.run(scenario)
    assert [asked[1] for asked in bench.mover.asked] == [["r1"], ["r1"], ["r1", "r2"]]


def test_the_journal_is_asked_for_ones_own_alone() -> None:
    """What is left out afterwards would take the place of what is one's own."""
    bench = keyed()

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http, SOME)
        bench.pages_journal.asked.clear()
        for path in ("/oddities", "/audit", "/dead-letters"):
            assert (await http.get(f"/ui{path}")).status_code == 200
        looks = {asked[0]: asked[-1] for asked in bench.pages_journal.asked}
        assert looks.pop("dead") == {"types": ["a.*"]}
        odd = ("most_resent", "coalesced_groups", "conflicts", "not_run_counts", "latest_changes")
        assert looks == {name: ["a.*"] for name in odd}

    bench.run(scenario)


def test_of_a_conflict_each_sees_the_side_that_is_his() -> None:
    bench = keyed()
    side = {"payload": b'{"mine": 1}', "payload_bytes": 11, "other_payload": b'{"theirs": 2}',
            "other_payload_bytes": 13, "type": "a.b", "request_id": "r1", "number": 7, "at": AT,
            "other_headers": orjson.loads(headers_json([("ce_type", b"c.d")])), "fingerprint": None,
            "state": "dead", "code": "handler_error", "stored_topic": "t", "stored_partition": 0,
            "stored_offset": 1, "topic": "t", "partition": 0, "kafka_offset": 2}  # fmt: skip
    bench.pages_journal.odd["conflicts"] = [side]

    async def scenario(http: httpx.AsyncClient) -> None:
        await log_in(http, SOME)
        page = (await http.get("/ui/oddities")).text
        assert "mine" in page
        assert "theirs" not in page
        assert "c.d" not in page
        await log_in(http)
        assert "theirs" in (await http.get("/ui/oddities")).text
        side["request_id"] = None  # as an import of dead letters may bring it
        page = (await http.get("/ui/oddities")).text
        assert "no id" in page
        assert "theirs" in page

    bench.run(scenario)
