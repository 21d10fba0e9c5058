"""What is wrong, in words, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from consumer.admin.overview import Look
from consumer.gateway.pages.snapshots import NOT_YET
from consumer.gateway.pages.words import age, count

OVERDUE: Final = 60.0
"""Seconds after which what is due and does not run is worth a word."""
SILENT: Final = 15.0
"""Seconds without news of an instance."""
# What is to be done about a database depends on what is wrong, and errors of one say it.
_SOURCES: Final = {
    "instances": ("Redis does not answer", "Correct redis_url or start Redis; requests run on."),
    "topics": ("Lag can't be read", "Correct kafka_bootstrap_servers or start the brokers."),
    "journal": ("The journal can't be read", ""),
    "times": ("Times can't be read", "The plots are old or empty; requests run on."),
    "outbox": ("The outbox can't be read", ""),
}


class Notice(NamedTuple):
    """One thing that somebody should know."""

    grade: Literal["wrong", "look"]
    """`wrong`: requests do not run as they should; `look`: somebody has to decide something."""
    what: str
    advice: str
    """What to do about it, in a sentence."""
    path: str = ""
    """Of the page where it can be done, below /ui."""


def notices(look: Look) -> list[Notice]:
    """All of them, the worst first."""
    found = [*_of_sources(look), *_of_instances(look), *_of_journal(look), *_of_rest(look)]
    return sorted(found, key=lambda one: one.grade != "wrong")


def _of_sources(look: Look) -> Iterator[Notice]:
    for name, reason in look.problems.items():
        what, advice = _SOURCES.get(name, (name, ""))
        said = advice.rstrip(".").lower() in reason.lower()  # an error may say itself what to do
        yield Notice("wrong", f"{what}: {reason}", "" if said or reason == NOT_YET else advice)


def _of_instances(look: Look) -> Iterator[Notice]:
    if look.instances is None:
        return
    if not look.instances:
        yield Notice("wrong", "No instance is registered: nothing runs", "Start `oncepool run`.")
    for facts in look.instances:
        yield from _of_instance(facts)
    free = sum(facts.get("workers_free") or 0 for facts in look.instances)
    lag = sum(topic["waiting"] for topic in look.topics or ())
    if look.instances and lag and not free:
        yield Notice(
            "look",
            f"All workers are busy, with {_many(lag, 'message')} in Kafka",
            "More workers or instances take them sooner.",
            "/limits",
        )


def _of_instance(facts: dict[str, Any]) -> Iterator[Notice]:
    name = facts["id"]
    if facts.get("age", 0) > SILENT:
        yield Notice(
            "wrong",
            f"{name} was last heard of {age(facts['age'])} ago",
            "If its process is gone, others take over soon; else look at its log.",
        )
    elif facts.get("stopping"):
        yield Notice("look", f"{name} is stopping", "It finishes what it has in hand.")
    elif not facts.get("joined", True):
        yield Notice(
            "wrong",
            f"{name} is not in the consumer group",
            "Look at its log: brokers, rights, or a rebalance that does not end.",
        )
    if facts.get("paused"):
        said = ", ".join(str(reason) for reason in facts["paused"])
        yield Notice(
            "wrong",
            f"{name} takes no new requests: {said}",
            "It goes on by itself when the reason is gone.",
        )


def _of_journal(look: Look) -> Iterator[Notice]:
    journal = look.journal
    if journal is None:
        return
    if journal.in_doubt:
        yield Notice(
            "look",
            f"{_many(journal.in_doubt, 'request')} in doubt: effects may have happened",
            "Find out whether they happened, and resolve them.",
            "/requests?state=in_doubt",
        )
    if journal.dead:
        yield Notice(
            "look",
            _many(journal.dead, "dead request"),
            "Read the errors; retry, or drop.",
            "/requests?state=dead",
        )
    if journal.messages:
        yield Notice(
            "look",
            f"{_many(journal.messages, 'message')} that became no request",
            "Correct and retry, or drop.",
            "/dead-letters?kind=message",
        )
    for row in journal.types:
        if (row["overdue"] or 0) > OVERDUE:
            yield Notice(
                "wrong",
                f"{row['type']}: due for {age(row['overdue'])} and not run",
                "Is it paused, limited, or without an instance that knows it?",
                "/limits",
            )
        if row["lost"]:
            yield Notice(
                "look",
                f"{row['type']}: {count(row['lost'])} lost at commit in a day",
                "Their producers send them again.",
                "/oddities",
            )


def _of_rest(look: Look) -> Iterator[Notice]:
    limits = look.limits
    if limits is not None:
        for kind in sorted(kind for kind, limit in limits.types.items() if limit.paused):
            yield Notice("look", f"{kind} is paused", "Resume it when it may run.", "/limits")
        for field in limits.unread:
            yield Notice(
                "wrong",
                f"The limit {field!r} is unreadable and ignored",
                "Set it again.",
                "/limits",
            )
    for row in look.outbox or ():
        if row["state"] in ("unanswered", "undeliverable"):
            yield Notice(
                "look",
                f"{count(row['n'])} of {row['type']} are {row['state']} in the"
                f" outbox of {row['sender']}",
                "`oncepool outbox list` says why; retry or drop them there.",
            )


def _many(n: int, what: str) -> str:
    return f"{count(n)} {what}" if n == 1 else f"{count(n)} {what}s"
