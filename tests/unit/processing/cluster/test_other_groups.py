"""Which groups under one prefix would take each other's waiting requests."""

from __future__ import annotations

from typing import Any

from processing.cluster.other_groups import other_groups
from processing.cluster.quota import peer


def found(*registered: dict[str, Any], types: tuple[str, ...] = ("b", "a")) -> dict[str, Any]:
    return other_groups("bill", types, [peer({"id": "x", **facts}) for facts in registered])


def test_another_group_with_types_of_the_same_name_is_told() -> None:
    assert found(
        {"group": "shop", "types": ["a", "c"]},
        {"group": "shop", "types": ["b"]},
        {"group": "post", "types": ["a"]},
    ) == {"post": ("a",), "shop": ("a", "b")}


def test_who_takes_no_such_request_is_not() -> None:
    assert not found(
        {"group": "bill", "types": ["a", "b"]},
        {"group": "shop", "types": ["c"]},
        {"group": "shop", "types": ["a"], "stopping": True},
        {"types": ["a"]},  # of a version that does not say its group
    )
