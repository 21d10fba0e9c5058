"""How settings are grouped, in help texts and in docs/configuration.md."""

from __future__ import annotations

from typing import Final

GROUPS: Final = {
    "What runs": ("app", "workers", "ordering", "max", "request", "grace"),
    "Kafka": ("kafka", "auto", "read", "topic"),
    "Journal (PostgreSQL)": ("database", "lease", "sweep", "check", "migrate"),
    "Outbox (the producer's PostgreSQL)": ("outbox",),
    "Result records": ("results",),
    "Statuses (Redis)": ("redis",),
    "Workers": ("worker",),
    "HTTP gateway": ("gateway",),
    "Health, logs, traces": ("health", "log", "tracing"),
}
"""Heading -> first words of the names below it."""

_GROUP: Final = {word: heading for heading, words in GROUPS.items() for word in words}


def group_of(name: str) -> str:
    """The heading of a setting. Raises KeyError for a first word that stands under none."""
    return _GROUP[name.split("_", maxsplit=1)[0]]
