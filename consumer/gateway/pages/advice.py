"""What is wrong, in words, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from consumer.admin.overview import Look
from consumer.gateway.pages.words import age, count

OVERDUE: Final = 60.0
"""Seconds after which what is due and does not run is worth a word."""
SILENT: Final = 15.0
"""Seconds without news of an instance."""
_SOURCES: Final = {
    "instances": ("Redis does not answer", "correct redis_url or start Redis; requests run on"),
    "topics": ("Lag can't be read", "correct kafka_bootstrap_servers or start the brokers"),
    "journal": ("The journal can't be read", "correct database_url or start PostgreSQL"),
    "times": ("Times can't be read", "the plots are old or empty; requests run on"),
    "outbox": ("The outbox can't be read", "correct outbox_database_url or start PostgreSQL"),
}


class Notice(NamedTuple):
    """One thing that somebody should know."""

    grade: Literal["wrong", "look"]
    """`wrong`: requests do not run as they should; `look`: somebody has to decide something."""
    what: str
    advice: str
    path: str = ""
    """Of the page where it can be done, below /ui."""


def notices(look: Look) -> list[Notice]:
    """All of them, the worst first."""
    found = [*_of_sources(look), *_of_instances(look), *_of_journal(look), *_of_rest(look)]
    return sorted(found, key=lambda one: one.grade != "wrong")


def _of_sources(look: Look) -> Iterator[Notice]:
    for name, reason in look.problems.items():
        what, advice = _SOURCES.get(name, (name, ""))
        yield Notice("wrong", f"{what}: {reason}", advice)


def _of_instances(look: Look) -> Iterator[Notice]:
    if look.instances is None:
        return
    if not look.instances:
        yield Notice("wrong", "No instance is registered: nothing runs", "start `oncepool run`")
    for facts in look.instances:
        yield from _of_instance(facts)
    free = sum(facts.get("workers_free") or 0 for facts in look.instances)
    lag = sum(topic["waiting"] for topic in look.topics or ())
    if look.instances and lag and not free:
        yield Notice(
            "look",
            f"All workers are busy, and {count(lag)} messages wait in Kafka",
            "more workers or instances take them sooner; see Limits",
            "/limits",
        )


def _of_instance(facts: dict[str, Any]) -> Iterator[Notice]:
    name = facts["id"]
    if facts.get("age", 0) > SILENT:
        yield Notice(
            "wrong",
            f"{name} was last heard of {age(facts['age'])} ago",
            "if its process is gone, others take over soon; else look at its log",
        )
    elif facts.get("stopping"):
        yield Notice("look", f"{name} is stopping", "it finishes what it has in hand")
    elif not facts.get("joined", True):
        yield Notice(
            "wrong",
            f"{name} is not in the consumer group",
            "look at its log: brokers, rights, or a rebalance that does not end",
        )
    if facts.get("paused"):
        said = ", ".join(str(reason) for reason in facts["paused"])
        yield Notice(
            "wrong",
            f"{name} takes no new requests: {said}",
            "it goes on by itself when the reason is gone",
        )


def _of_journal(look: Look) -> Iterator[Notice]:
    journal = look.journal
    if journal is None:
        return
    if journal.in_doubt:
        yield Notice(
            "look",
            f"{count(journal.in_doubt)} in doubt: their effect may have happened",
            "find out whether it did, and resolve them",
            "/requests?state=in_doubt",
        )
    if journal.dead:
        yield Notice(
            "look",
            f"{count(journal.dead)} dead requests",
            "read their errors; retry them, or drop them",
            "/requests?state=dead",
        )
    if journal.messages:
        yield Notice(
            "look",
            f"{count(journal.messages)} messages could not become requests",
            "correct and retry them, or drop them",
            "/dead-letters?kind=message",
        )
    for row in journal.types:
        if (row["overdue"] or 0) > OVERDUE:
            yield Notice(
                "wrong",
                f"{row['type']}: due for {age(row['overdue'])} and not run",
                "is it paused, limited, or without an instance that knows it?",
                "/limits",
            )
        if row["lost"]:
            yield Notice(
                "look",
                f"{row['type']}: {count(row['lost'])} lost at commit in a day",
                "their producers send them again; see Oddities",
                "/oddities",
            )


def _of_rest(look: Look) -> Iterator[Notice]:
    limits = look.limits
    if limits is not None:
        for kind in sorted(kind for kind, limit in limits.types.items() if limit.paused):
            yield Notice("look", f"{kind} is paused", "resume it when it may run", "/limits")
        for field in limits.unread:
            yield Notice(
                "wrong", f"The limit {field!r} is unreadable and ignored", "set it again", "/limits"
            )
    for row in look.outbox or ():
        if row["state"] in ("unanswered", "undeliverable"):
            yield Notice(
                "look",
                f"{count(row['n'])} of {row['type']} are {row['state']} in the"
                f" outbox of {row['sender']}",
                "`oncepool outbox list` says why; retry or drop them there",
            )
