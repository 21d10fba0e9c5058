"""Which instances of a group use another journal than this one."""

from __future__ import annotations

from typing import Any

from processing.cluster.other_journals import other_journals
from processing.cluster.quota import peer


def found(*registered: dict[str, Any], journal: str = "mine") -> dict[str, str]:
    peers = [peer({"id": f"i{n}", **facts}) for n, facts in enumerate(registered)]
    return other_journals("shop", journal, peers)


def test_those_of_the_same_group_with_another_one_are_told() -> None:
    assert found(
        {"group": "shop", "journal": "mine"},
        {"group": "shop", "journal": "theirs"},
        {"group": "post", "journal": "theirs"},
    ) == {"i1": "theirs"}


def test_who_does_not_say_which_it_uses_is_not() -> None:
    """As one of an older version, or one that has not reached its database yet."""
    assert not found({"group": "shop"}, {"journal": "theirs"})
    assert not found({"group": "shop", "journal": "theirs"}, journal="")
