"""Instances of other groups under the same prefix: most likely of another application. Pure.

They take each other's waiting requests where a type of one name is handled by both: ids, types,
schedules and limits belong to schema and prefix, not to a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from processing.cluster.quota import Peer

ADVICE = (
    "give each application a schema and a prefix of its own: database_schema"
    " (ONCEPOOL_DATABASE_SCHEMA), redis_prefix (ONCEPOOL_REDIS_PREFIX), which its producers need,"
    " too; groups of one and the same application may share them"
)


def other_groups(
    group: str, types: Collection[str], peers: Iterable[Peer]
) -> dict[str, tuple[str, ...]]:
    """Other group -> the types, in order, that its live instances handle as `group` does.

    Instances that take nothing new, or do not say their group (of older versions), are left out.
    """
    shared: dict[str, set[str]] = {}
    for one in peers:
        common = one.types.intersection(types)
        if common and one.group not in ("", group) and not one.stopping:
            shared.setdefault(one.group, set()).update(common)
    return {other: tuple(sorted(shared[other])) for other in sorted(shared)}


def in_words(found: Mapping[str, Collection[str]]) -> str:
    """Which groups with which types."""
    return "; ".join(f"group {group}: {', '.join(types)}" for group, types in found.items())
