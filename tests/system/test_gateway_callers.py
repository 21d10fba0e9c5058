"""Who calls a gateway as a process of its own: with API keys, too often, and too many who wait."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumer.config.gateway_keys import hash_of
from feedback.metrics.names import ShownBy
from tests.support.gateway import bearer
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.journal import Journal
from tests.support.metrics import check_with_promtool, listed, scrape
from tests.support.promql import kinds_of, series_of
from tests.support.service import Bench
from tests.support.waiting import eventually

RARELY = 0.01
"""Calls a second: after the first one nobody calls again while a test lasts."""
KEYS: dict[str, dict[str, Any]] = {
    "shop": {"roles": ["send"], "types": ["pay.*"]},
    "desk": {"roles": ["read"], "types": ["pay.*"]},
    "ops": {"roles": ["operate"], "types": ["pay.*"]},
    "busy": {"roles": ["send", "read"], "rate": RARELY},
    "guest": {"roles": ["read"], "rate": RARELY},
}
MAY: dict[str, list[int]] = {
    "shop": [202, 403, 403, 403, 403, 403, 403],
    "desk": [403, 403, 200, 404, 403, 403, 200],
    "ops": [403, 403, 403, 403, 200, 404, 403],
}
"""By key: POST of its types and of another, GET of its own and of another's, retry of either, and
/metrics."""


def token(name: str) -> str:
    return f"the-key-of-{name}".ljust(40, "-")


def with_keys() -> str:
    """The setting gateway_keys."""
    return json.dumps({name: {"hash": hash_of(token(name)), **key} for name, key in KEYS.items()})


def is_refused(answer: httpx.Response, status: int, code: str) -> None:
    """With a problem document."""
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert answer.json()["type"] == f"urn:oncepool:problem:{code}"


def comes_again(answer: httpx.Response) -> None:
    """As soon as there is a next call."""
    assert answer.status_code == 429
    assert 0.9 / RARELY <= int(answer.headers["Retry-After"]) <= 1 / RARELY


def test_a_key_may_do_what_it_is_for_and_as_often_as_it_says(
    bench: Bench, journal: Journal, tmp_path: Path
) -> None:
    for type_ in ("pay.card", "ship.box"):
        journal.put(f"dead-{type_}", type=type_)
    log = tmp_path / "gateway.log"
    with GatewayProcess(bench.environment, log, gateway_keys=with_keys()) as gateway:
        _roles_and_types(gateway)
        _too_often(gateway)
        _too_often_for_pages(gateway)
        assert "no API keys" not in gateway.log
        assert not any(token(name) in gateway.log for name in KEYS)


def _roles_and_types(gateway: GatewayProcess) -> None:
    http = gateway.http
    for headers, error in (
        ({}, ""),
        (bearer(token("nobody")), ', error="invalid_token"'),
        ({"Authorization": "Basic dTpw"}, ', error="invalid_request"'),
    ):
        for answer in (
            http.post("/requests/pay.card", json={}, headers=headers),
            http.get("/requests/dead-pay.card", headers=headers),
            http.get("/metrics", headers=headers),
        ):
            is_refused(answer, 401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == f'Bearer realm="oncepool"{error}'
    codes = {401: "unauthorized", 403: "forbidden", 404: "unknown"}
    for name, wanted in MAY.items():
        headers = bearer(token(name))
        answers = [
            http.post("/requests/pay.card", json={}, headers=headers),
            http.post("/requests/ship.box", json={}, headers=headers),
            http.get("/requests/dead-pay.card", headers=headers),
            http.get("/requests/dead-ship.box", headers=headers),
            http.post("/requests/dead-pay.card/retry", headers=headers),
            http.post("/requests/dead-ship.box/retry", headers=headers),
            http.get("/metrics", headers=headers),
        ]
        assert [answer.status_code for answer in answers] == wanted, name
        for answer in answers:
            if not answer.is_success:
                is_refused(answer, answer.status_code, codes[answer.status_code])


def _too_often(gateway: GatewayProcess) -> None:
    http, headers = gateway.http, bearer(token("busy"))
    assert http.get("/requests/dead-pay.card", headers=headers).status_code == 200
    for answer in (
        http.get("/requests/dead-pay.card", headers=headers),
        http.post("/requests/pay.card", json={}, headers=headers),
    ):
        is_refused(answer, 429, "too_many_requests")
        comes_again(answer)
    assert http.get("/requests/dead-pay.card", headers=bearer(token("desk"))).status_code == 200


def _too_often_for_pages(gateway: GatewayProcess) -> None:
    """People are told so on a page, at the login, too, which counts as a call."""
    with httpx.Client(base_url=gateway.http.base_url, timeout=WAIT) as browser:
        assert browser.get("/ui/").status_code == 303
        login = {"key": token("guest"), "next": "/"}
        assert browser.post("/ui/login", data=login).status_code == 303
        for answer in (browser.get("/ui/"), browser.post("/ui/login", data=login)):
            comes_again(answer)
            assert answer.headers["content-type"].startswith("text/html")
            assert "slow down" in answer.text
        wrong = browser.post("/ui/login", data={"key": token("nobody")})
        assert (wrong.status_code, "not known here" in wrong.text) == (401, True)
        assert "invalid_token" in wrong.headers["WWW-Authenticate"]
        assert browser.get("/ui/static/pages.css").status_code == 200


def test_who_would_wait_beyond_the_bound_is_answered_at_once(
    bench: Bench, journal: Journal, tmp_path: Path
) -> None:
    journal.put("later", "waiting", due_at="2031-01-01")
    log = tmp_path / "gateway.log"
    with GatewayProcess(bench.environment, log, gateway_max_waits="1") as gateway:
        poll = socket.create_connection(gateway.address, WAIT)
        poll.sendall(b"GET /requests/later?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # A connection that was made later has been answered, so this one waits by now.
        assert httpx.get(f"{gateway.http.base_url}/livez").status_code == 200
        second = gateway.http.get("/requests/later", params={"wait": 60})
        assert (second.status_code, second.json()["state"]) == (200, "waiting")
        assert "Retry-After" in second.headers
        posted = gateway.post("effect", {}, "k", prefer="respond-async, wait=60")
        assert (posted.status_code, posted.headers["Preference-Applied"]) == (202, "respond-async")
        poll.setblocking(False)
        with pytest.raises(BlockingIOError):
            poll.recv(1)
        poll.close()

        def waited() -> bool:
            again = gateway.post("effect", {}, "k", prefer="wait=1")
            return again.headers.get("Preference-Applied") == "wait=1"

        eventually(waited, WAIT)  # its place is free, as its client has gone


def test_what_it_counts_is_shown_under_the_names_of_the_list(bench: Bench, tmp_path: Path) -> None:
    with GatewayProcess(bench.environment, tmp_path / "gateway.log") as gateway:
        for key in ("a", "b"):
            assert gateway.post("effect", {}, key).status_code == 202
        for path in ("/requests/nobody", "/requests/nobody?wait=1", "/nowhere"):
            assert gateway.http.get(path).status_code == 404
        port = gateway.address[1]
        text = scrape(port)
        again = series_of(scrape(port))
    check_with_promtool(text)
    assert kinds_of(text) == listed(ShownBy.GATEWAY)
    assert {
        tuple(one.labels[name] for name in ("route", "method", "status")): one.value
        for one in again
        if one.name == "oncepool_gateway_requests_total"
    } == {
        ("/requests/{type}", "POST", "202"): 2, ("/requests/{id}", "GET", "404"): 2,
        ("none", "GET", "404"): 1, ("/metrics", "GET", "200"): 1,
    }  # fmt: skip
    took = {
        (one.name.rpartition("_")[2], one.labels["route"]): one.value
        for one in again
        if one.name.startswith("oncepool_gateway_request_seconds") and "le" not in one.labels
    }
    assert took["count", "/requests/{id}"] == 2
    assert took["sum", "/requests/{id}"] >= 1  # the long poll's second is in it
