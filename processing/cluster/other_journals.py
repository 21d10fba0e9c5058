"""Instances of the same group that use another journal. Pure.

One knows nothing of what the other ran: where a partition goes from one to the other, and where a
request is sent again, effects happen twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from processing.cluster.quota import Peer

ADVICE = (
    "end one of the two, and give all instances of a group the same database and schema:"
    " database_url (ONCEPOOL_DATABASE_URL), database_schema (ONCEPOOL_DATABASE_SCHEMA)"
)


def other_journals(group: str, journal: str, peers: Iterable[Peer]) -> dict[str, str]:
    """Instance -> the journal that it uses, of those of `group` that do not use this one.

    Instances that do not say which they use (of older versions, or before they have reached it) are
    left out.
    """
    if not (group and journal):
        return {}
    live = sorted(peers, key=lambda one: one.id)
    return {
        one.id: one.journal for one in live
        if one.group == group and one.journal not in ("", journal)
    }  # fmt: skip


def in_words(found: Mapping[str, str]) -> str:
    """Which instances use which."""
    return "; ".join(f"{name}: {journal}" for name, journal in found.items())
