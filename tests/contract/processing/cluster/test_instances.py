"""The list of instances in Redis."""

from __future__ import annotations

import time

import pytest

from processing.cluster.instances import Registration, connect, instances
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
