"""What a sandbox makes of requests is what a worker and a database make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stack import Stack
from tests.support.worlds import DatabaseWorld, SandboxWorld, World

Scenario = Callable[[World], dict[str, tuple[str, str] | None]]
"""Sends and waits; says how each id has to stand, None: no row."""


def done_and_sent_again(world: World) -> Any:
    for _ in range(3):
        world.send("once", {"n": 1}, request_id="a")
        world.run()
    return {"a": ("done", "ok")}


def sent_twice_at_once(world: World) -> Any:
    world.send("once", {"n": 1}, request_id="a")
    world.send("once", {"n": 1}, request_id="a")
    world.run()
    return {"a": ("done", "ok")}


def another_payload_under_its_id(world: World) -> Any:
    world.send("once", {"n": 1}, request_id="a")
    world.send("once", {"n": 2}, request_id="a")
    world.send("typed", {"amount": 1}, request_id="a")
    world.run()
    return {"a": ("done", "ok")}


def conflicts_that_are_sent_again(world: World) -> Any:
    world.send("once", {"n": 1}, request_id="a")
    world.run()
    for payload in ({"n": 2}, {"n": 2}, {"n": 3}, {"n": 2}):
        world.send("once", payload, request_id="a")
        world.run()
    return {"a": ("done", "ok")}


def failed_and_sent_again(world: World) -> Any:
    world.send("once", {"fail": 1}, request_id="a")
    world.run()
    world.send("once", {"fail": 1}, request_id="a")
    world.run()
    return {"a": ("failed", "handler_error")}


def done_at_the_second_attempt(world: World) -> Any:
    world.send("again", {"fail": 1}, request_id="a")
    world.run()
    world.send("again", {"fail": 1}, request_id="a")  # answered: it waits
    world.wait(10)
    return {"a": ("done", "ok")}


def between_two_attempts(world: World) -> Any:
    world.send("again", {"fail": 2}, request_id="a", key="k")
    world.wait(10)
    return {"a": ("waiting", "handler_error")}


def all_attempts_used_up(world: World) -> Any:
    world.send("again", {"fail": 3}, request_id="a")
    world.wait(10)
    world.wait(20)
    return {"a": ("dead", "handler_error")}


def asked_for_another_try(world: World) -> Any:
    world.send("once", {"retry": 1}, request_id="a")
    world.send("again", {"retry": 1, "counts": False}, request_id="b")
    world.wait(29)
    return {"a": ("waiting", "retry"), "b": ("waiting", "retry")}


def refused(world: World) -> Any:
    world.send("again", {"reject": True}, request_id="a")
    world.send("typed", {"amount": "many"}, request_id="b")
    world.send("typed", {"amount": 7}, request_id="c")
    world.run()
    return {
        "a": ("rejected", "no_funds"), "b": ("rejected", "invalid_payload"), "c": ("done", "ok"),
    }  # fmt: skip


def of_an_unknown_type(world: World) -> Any:
    world.send("novel", {}, request_id="a")
    world.run()
    world.wait(6)
    return {"a": ("waiting", "unknown_type")}


def delayed(world: World) -> Any:
    world.send("once", {}, request_id="a", delay=100)
    world.send("once", {}, request_id="b", delay=100)
    world.wait(50)
    world.send("once", {"other": 1}, request_id="b")
    world.wait(51)
    world.send("once", {}, request_id="c", delay=100)
    world.run()
    return {"a": ("done", "ok"), "b": ("done", "ok"), "c": ("waiting", "delayed")}


def expired(world: World) -> Any:
    world.send("once", {}, request_id="a", expires=-1)
    world.run()
    return {"a": ("rejected", "expired")}


def with_follow_ups(world: World) -> Any:
    world.send("parent", {"fail": 1}, request_id="a")
    world.wait(10)
    return {"a": ("done", "ok"), "child of a": ("done", "ok")}


def of_one_reference(world: World) -> Any:
    world.send("newest", {"of": "x", "n": 1}, request_id="a")
    world.run()
    world.send("newest", {"of": "x", "n": 2}, request_id="b")
    world.send("newest", {"of": "y"}, request_id="c", reference="x")
    world.run()
    world.wait(30)
    world.send("newest", {"of": "x", "fail": 1}, request_id="d")
    world.wait(61)
    world.send("newest", {"of": "x"}, request_id="e")
    world.wait(61)
    return {
        "a": ("superseded", "superseded"), "b": ("superseded", "superseded"),
        "c": ("superseded", "superseded"), "d": ("superseded", "superseded"), "e": ("done", "ok"),
    }  # fmt: skip


def pure_computation(world: World) -> Any:
    world.send("pure", {}, request_id="a")
    world.send("pure", {"fail": 1}, request_id="b")
    world.send("pure", {"fail": 3}, request_id="c")
    world.run()
    world.wait(10)
    world.wait(20)
    return {"a": None, "b": None, "c": ("dead", "handler_error")}


def calls_outside(world: World) -> Any:
    world.send("asked", {}, request_id="a")
    world.send("asked", {"fail": 1, "done": True}, request_id="b")
    world.send("asked", {"fail": 1}, request_id="c")
    world.send("asked", {"retry": 1}, request_id="d")
    world.run()
    for name, payload in (("b", {"fail": 1, "done": True}), ("a", {})):
        world.send("asked", payload, request_id=name)
    world.run()
    return {
        "a": ("done", "ok"), "b": ("done", "ok"), "c": ("in_doubt", "handler_error"),
        "d": ("waiting", "retry"),
    }  # fmt: skip


def asked_about_by_the_clock(world: World) -> Any:
    world.send("asked", {"fail": 1, "done": True}, request_id="a")
    world.send("asked", {"fail": 1, "done": True, "unknown": 2}, request_id="b")
    world.send("asked", {"fail": 1, "unknown": 9}, request_id="c")
    world.send("asked", {"fail": 1}, request_id="d")
    world.send("call", {"fail": 1}, request_id="e")  # a check that raises
    world.wait(32)
    world.wait(32)
    world.send("asked", {"fail": 1, "unknown": 9}, request_id="c")  # sent again it is asked, too
    world.wait(65)
    return {
        "a": ("done", "ok"), "b": ("done", "ok"), "c": ("in_doubt", "handler_error"),
        "d": ("done", "ok"), "e": ("in_doubt", "handler_error"),
    }  # fmt: skip


def in_a_batch(world: World) -> Any:
    for n in (1, 2, 3, 5, 7):
        world.send("batch", {"n": n}, request_id=str(n))
    world.wait(4)
    failed = ("waiting", "handler_error")
    return {
        "1": ("rejected", "odd"), "2": ("done", "ok"), "3": ("waiting", "retry"),
        "5": failed, "7": failed,
    }  # fmt: skip


def conflicts_in_each_state(world: World) -> Any:
    first: dict[str, tuple[str, dict[str, Any]]] = {
        "doubt": ("asked", {"fail": 1, "unknown": 9}), "waits": ("again", {"fail": 2}),
        "pure": ("pure", {"fail": 2}), "dead": ("again", {"fail": 3}),
        "refused": ("again", {"reject": True}), "failed": ("once", {"fail": 1}),
        "called": ("asked", {}), "newest": ("newest", {"of": "x"}),
    }  # fmt: skip
    for name, (kind, payload) in first.items():
        world.send(kind, payload, request_id=name)
    world.wait(10)
    for name, (kind, payload) in first.items():
        world.send(kind, payload | {"other": 1}, request_id=name)
        world.send("own", {"a": name}, request_id=name)
    world.run()
    return {
        "doubt": ("in_doubt", "handler_error"), "waits": ("waiting", "handler_error"),
        "pure": ("waiting", "handler_error"), "dead": ("waiting", "handler_error"),
        "refused": ("rejected", "no_funds"), "failed": ("failed", "handler_error"),
        "called": ("done", "ok"), "newest": ("waiting", "coalescing"),
    }  # fmt: skip


def follow_ups_of_other_kinds(world: World) -> Any:
    for kind in ("newest", "pure", "novel", "asked", "typed"):
        world.send("parent", {"then": kind}, request_id=kind)
    world.send("once", {"other": 1}, request_id="child of once")
    world.run()
    world.send("parent", {"then": "once"}, request_id="once")  # it is there already
    world.run()
    return {
        "child of newest": ("waiting", "coalescing"), "child of pure": None,
        "child of novel": ("waiting", "unknown_type"), "child of asked": ("done", "ok"),
        "child of typed": ("rejected", "invalid_payload"), "child of once": ("done", "ok"),
    }  # fmt: skip


def older_ones_that_come_late(world: World) -> Any:
    old = ("ce_type", b"newest"), ("ce_time", b"2020-01-01T00:00:00Z")
    world.send("newest", {"of": "x", "n": 1}, request_id="a")
    world.raw(b'{"of":"x","n":0}', ("ce_id", b"b"), *old)
    world.run()
    world.wait(61)
    world.raw(b'{"of":"x","n":0}', ("ce_id", b"c"), *old)
    world.run()
    late = ("superseded", "superseded")
    return {"a": ("done", "ok"), "b": late, "c": late}


def no_request_at_all(world: World) -> Any:
    world.raw(b"{}", ("ce_type", b"once"))
    world.raw(b"{}", ("ce_id", b"a"), ("ce_type", b"once"), ("ce_timeout", b"soon"))
    world.raw(None, ("ce_id", b"b"), ("ce_type", b"once"))
    world.raw(b"{", ("ce_id", b"c"), ("ce_type", b"once"))
    world.run()
    return {"b": ("rejected", "invalid_payload"), "c": ("rejected", "invalid_payload")}


def with_a_fingerprint_of_its_own(world: World) -> Any:
    world.send("own", {"a": 1, "b": 1}, request_id="a")
    world.send("own", {"a": 1, "b": 2}, request_id="a")
    world.run()
    return {"a": ("done", "ok")}


SCENARIOS: list[Scenario] = [
    done_and_sent_again, sent_twice_at_once, another_payload_under_its_id,
    conflicts_that_are_sent_again, failed_and_sent_again,
    done_at_the_second_attempt, between_two_attempts, all_attempts_used_up, asked_for_another_try,
    refused, of_an_unknown_type, delayed, expired, with_follow_ups, of_one_reference,
    pure_computation, calls_outside, asked_about_by_the_clock, in_a_batch, no_request_at_all,
    with_a_fingerprint_of_its_own, conflicts_in_each_state, follow_ups_of_other_kinds,
    older_ones_that_come_late,
]  # fmt: skip


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What the sandbox says, and what the database does, where that is not the same."""
    found = {}
    for name in ("attempts", "letters", "statuses", "effects"):
        if ours[name] != theirs[name]:
            found[name] = (ours[name], theirs[name])
    for name in ours["rows"].keys() | theirs["rows"].keys():
        one, other = ours["rows"].get(name, {}), theirs["rows"].get(name, {})
        for column in one.keys() | other.keys():
            if one.get(column) != other.get(column):
                found[f"{name}.{column}"] = (one.get(column), other.get(column))
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_the_sandbox_keeps_the_books_of_the_database(
    scenario: Scenario, stack: Stack, schema: str
) -> None:
    books = []
    memory = SandboxWorld()
    with memory.sandbox:
        expected = scenario(memory)
        books.append(memory.books())
    for world in (DatabaseWorld(stack.database, schema),):
        assert scenario(world) == expected
        books.append(world.books())
    for each in books:
        rows = each["rows"]
        stands = {n: (rows[n]["state"], rows[n]["code"]) if n in rows else None for n in expected}
        assert stands == expected
    assert differences(*books) == {}
