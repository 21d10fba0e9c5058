"""The recording server counts what it was asked, and not who only came by."""

from __future__ import annotations

import socket

import pytest

from tests.chaos.real.outside import Outside


def asked(outside: Outside, line: str) -> str:
    """Its answer to whoever sends this and nothing more."""
    with socket.create_connection(("127.0.0.1", outside.port), 5) as caller:
        caller.sendall(line.encode())
        caller.shutdown(socket.SHUT_WR)
        with caller.makefile() as answer:
            return answer.readline().strip()


def test_charges_are_counted_and_found() -> None:
    with Outside(1, lose=0.0) as outside:
        assert [asked(outside, "CHARGE a\n") for _ in range(2)] == ["charged", "charged"]
        assert [asked(outside, f"FIND {name}\n") for name in "ab"] == ["yes", "no"]
    assert outside.charges["a"] == 2


@pytest.mark.parametrize("cut", ["", "CHARGE", "CHARGE a"])
def test_whoever_is_killed_before_it_has_asked_has_made_no_call(cut: str) -> None:
    with Outside(1, lose=0.0) as outside:
        assert not asked(outside, cut)
    assert outside.charges.total() == 0
