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
