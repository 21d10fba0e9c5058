"""The list of instances in Redis."""

from __future__ import annotations

import time
from typing import Any

import pytest

from processing.cluster.instances import Registration, connect, instances
from processing.cluster.quota import peer
from stack import Stack


def test_an_instance_whose_clock_is_hours_ahead_removes_nobody(
    stack: Stack, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = time.time() + 2 * 3600
    with connect(stack.redis) as client:
        right, wrong = (Registration(client, prefix, name, 15) for name in ("right", "wrong"))
        right.renew({})
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: ahead)
            wrong.renew({})
        assert [facts["id"] for facts in instances(client, prefix)] == ["right", "wrong"]
        right.remove()
        wrong.remove()
        assert instances(client, prefix) == []


def test_what_is_no_registration_hides_no_other(stack: Stack, prefix: str) -> None:
    with connect(stack.redis) as client:
        Registration(client, prefix, "here", ttl=60).renew({})
        (here,) = instances(client, prefix)
        odd = {"a": "{}", "b": "nope", "c": "[]", "d": '{"id": 3, "at": 4}', "e": b"\xff", "f": "1"}
        for name, value in odd.items():
            client.zadd(f"{prefix}:instances", {name: 1})
            client.set(f"{prefix}:instance:{name}", value, ex=60)

        assert instances(client, prefix) == [here]


def test_a_registration_in_a_foreign_form_is_left_out_and_named(stack: Stack, prefix: str) -> None:
    """Or it would keep every other instance from limits, and from registering itself."""
    odd: list[dict[str, Any]] = [
        *({name: 5} for name in ("types", "at_once", "reserved", "needs", "missing_topics")),
        *({"types": [5]}, {"types": {"t": 1}}, {"at_once": {"t": "3"}}, {"at_once": ["t"]}),
        *({"workers_wanted": "4"}, {"running_requests": ["r"]}, {"without_start": "t/0"}),
    ]
    with connect(stack.redis) as client:
        Registration(client, prefix, "here", ttl=60).renew({"types": ["t"], "at_once": {"t": 3}})
        Registration(client, prefix, "older", ttl=60).renew({"types": None})
        for number, facts in enumerate(odd):
            Registration(client, prefix, f"odd-{number:02d}", ttl=60).renew(facts)
        left_out: list[str] = []
        found = instances(client, prefix, left_out)
        assert [facts["id"] for facts in found] == ["here", "older"]
        assert left_out == [f"odd-{number:02d}" for number in range(len(odd))]
        for facts in found:
            peer(facts)
