"""The chaos suite's callers of the gateway: what they do next, and which answers are wrong."""

from __future__ import annotations

import pytest

from tests.chaos.real.gateway_callers import Answer, OpenRequest, wrong_with
from tests.chaos.real.traffic import Item, Kind


def status(state: str, code: str = "ok", v: str = "000001", **more: str) -> dict[str, str]:
    return {"id": "a", "type": "move", "state": state, "code": code, "v": v, **more}


ITEM = Item("a", Kind.REQUEST, "move", b"k", b"{}", [], 1)


def test_a_caller_sends_again_what_was_refused_and_what_it_hears_nothing_of() -> None:
    asked = OpenRequest(ITEM, 100.0, 15.0)
    assert asked.due == 100.0
    asked.sent(101.0)
    assert asked.told(status("accepted"), 101.0) == ""
    assert asked.due == 116.0
    assert asked.told(status("failed", "shutdown", "000002"), 102.0) == "failed/shutdown"
    assert asked.due == 102.5
    asked.sent(103.0)
    assert asked.told(status("failed", "shutdown", "000002"), 104.0) == ""  # the one of before
    assert asked.due == 133.0  # it waits twice as long
    asked.told(status("waiting", v="000003", retry_at="1970-01-01T00:02:30+00:00"), 105.0)
    assert asked.due == 165.0
    assert asked.told(status("dead", "worker_died", "000004"), 106.0) == ""  # the operator's
    assert asked.end is None
    asked.told(status("done", v="000005"), 107.0)
    assert asked.end == ("done", "ok")


@pytest.mark.parametrize(
    "method, answer, good",
    [
        ("POST", Answer(0), True),
        ("POST", Answer(503), True),
        ("POST", Answer(409), True),
        ("POST", Answer(202, status("accepted")), True),
        ("GET", Answer(404), True),
        ("POST", Answer(404), False),
        ("POST", Answer(422, {}), False),
        ("POST", Answer(500), False),
        ("GET", Answer(200, status("done") | {"id": "b"}), False),
        ("GET", Answer(200, "no status"), False),
    ],
)
def test_a_caller_tells_a_wrong_answer_from_one_of_an_outage(
    method: str, answer: Answer, good: bool
) -> None:
    assert (wrong_with(ITEM, method, answer) == "") == good
