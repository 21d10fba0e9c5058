from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processing import App, Reject, Request
from processing.handlers.request import Request as Plain
from processing.testing import FakeCursor, run

SOON = datetime.now(UTC) + timedelta(hours=1)


def request(follow_ups: list[Any] | None) -> Plain[Any]:
    return Plain("1", "t", None, 1, {}, None, "t", 0, 0, {}, follow_ups)


def test_it_is_kept_until_its_request_is_done() -> None:
    asked: list[Any] = []
    made = request(asked)
    first = made.follow_up("mail.send", {"to": "a"})
    second = made.follow_up("mail.send", b"raw", at=SOON, request_id="m-1", key="k")
    assert [(f.id, f.type, f.payload, f.key, f.due) for f in asked] == [
        (first, "mail.send", b'{"to":"a"}', first.encode(), None),
        ("m-1", "mail.send", b"raw", b"k", SOON),
    ]
    assert second == "m-1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": ""},
        {"request_id": "a\n"},
        {"request_id": "\ud800", "key": "k"},
        {"type": "\ud800"},
        {"at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the mistake that is meant
        {"at": SOON + timedelta(days=4000)},
        {"payload": float("nan")},
        {"payload": object()},
    ],
)
def test_what_could_never_run_is_refused_in_the_handler(wrong: dict[str, Any]) -> None:
    asked: list[Any] = []
    with pytest.raises(ValueError, match=r".+"):
        request(asked).follow_up(**{"type": "t", "payload": {}, **wrong})
    assert asked == []


def test_pure_computation_has_no_transaction_to_write_it_in() -> None:
    with pytest.raises(ValueError, match='effect="none"'):
        request(None).follow_up("t", {})


def test_the_kit_shows_what_was_asked_for() -> None:
    app = App()

    @app.handler("order")
    def order(payload: dict[str, Any], request: Request[Any], tx: Any) -> None:
        request.follow_up("mail.send", payload)
        if payload.get("refuse"):
            raise Reject("no")

    outcome = run(app, "order", {"n": 1}, tx=FakeCursor([]))
    assert [(f.type, f.payload) for f in outcome.follow_ups] == [("mail.send", b'{"n":1}')]
    assert run(app, "order", {"refuse": True}, tx=FakeCursor([])).follow_ups == ()
