"""What is said of limits that hold while instances run, whoever looks at or changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis

from consumer.admin.redis_errors import RedisProblem
from consumer.config.loader import nearest
from consumer.config.settings import Settings
from feedback.errors import LimitsUnclear, StoreUnavailable
from feedback.operations.operator_changes import OperatorChange
from processing.cluster.instances import connect
from processing.cluster.limits import Changes, ClusterLimits, Setting, TypeLimit

WITHIN: Final = 5
"""Seconds within which live instances apply a change."""
LAST_HOLD: Final = "The last known limits hold meanwhile"
CHANGED: Final = "The change is made, and can't be shown"
NOT_NOTED: Final = "it holds, and who changed it is not in the audit"


@contextmanager
def limits_redis(settings: Settings, holds: str = LAST_HOLD) -> Iterator[redis.Redis]:
    """Where limits are kept; `holds` is what is said where that does not answer.

    Raises StoreUnavailable; LimitsUnclear as it is.
    """
    try:
        with connect(settings.redis_url) as client:
            yield client
    except LimitsUnclear:
        raise
    except (redis.RedisError, OSError, StoreUnavailable) as error:
        problem = RedisProblem.of(error)
        raise StoreUnavailable(
            f"limits are kept in Redis, and it {problem}; {problem.advice}. {holds}"
        ) from None


def said_of(changes: Changes, found: ClusterLimits, live: list[dict[str, Any]]) -> list[str]:
    """What is said to whoever has made them: who applies them, where anybody does; what is odd."""
    kinds = sorted({setting.type for setting in changes if setting.type is not None})
    odd = [warning for kind in kinds for warning in limit_warnings(kind, found, live)]
    if all(setting.type is not None and _has_no_handler(setting.type, live) for setting in changes):
        return odd
    return [who_applies(live), *odd]


def _has_no_handler(kind: str, live: list[dict[str, Any]]) -> bool:
    """Nobody who lives has one for a type; False while one has not said what it has."""
    return bool(live) and all(facts.get("types") and kind not in facts["types"] for facts in live)


def who_applies(live: list[dict[str, Any]]) -> str:
    """What is said to whoever has changed a limit."""
    if not live:
        return "no instance is registered: it holds for those that start from now on"
    names = ", ".join(facts["id"] for facts in live)
    return f"{len(live)} live instance(s) apply it within {WITHIN} s: {names}"


def limit_warnings(kind: str, found: ClusterLimits, live: list[dict[str, Any]]) -> Iterator[str]:
    """What is odd about the limits of a type, as the instances now are."""
    known = [facts for facts in live if kind in facts.get("types", ())]
    if _has_no_handler(kind, live):
        handled = {one for facts in live for one in facts["types"]}
        yield f"no live instance has a handler for {kind!r}{nearest(kind, handled)}"
    total = found.types[kind].total if kind in found.types else None
    if total is not None and len(known) > total:
        yield (
            f"there are more instances ({len(known)}) than may run a {kind!r} at once: while all of"
            " them have some, what arrives at the others waits in the journal"
        )


def noted(changes: Changes) -> list[OperatorChange]:
    """Changes of limits as they are kept in the journal, one for each type."""
    kinds = dict.fromkeys(setting.type for setting in changes)
    return [_noted(kind, {s: n for s, n in changes.items() if s.type == kind}) for kind in kinds]


def _noted(kind: str | None, changes: Changes) -> OperatorChange:
    name = "workers" if kind is None else kind
    if changes.keys() == {Setting("paused", kind)}:
        paused = changes[Setting("paused", kind)] is not None
        return OperatorChange("limits", name, kind, "pause" if paused else "resume")
    said = ", ".join(
        f"{setting.figure} {'none' if figure is None else figure}"
        for setting, figure in changes.items()
    )
    return OperatorChange("limits", name, kind, "set", said)


def _may_run(kind: str, limit: TypeLimit, live: list[dict[str, Any]]) -> dict[str, int]:
    """Instance -> how many it may run now, as its limits are; without the handler's own."""
    may = {}
    for facts in live:
        share = facts.get("at_once", {}).get(kind)
        own = limit.instance if kind in facts.get("types", ()) else None
        bounds = [n for n in (share, own, 0 if limit.paused else None) if n is not None]
        if bounds and (share is not None or kind in facts.get("types", ())):
            may[facts["id"]] = min(bounds)
    return may


def described(found: ClusterLimits, live: list[dict[str, Any]]) -> dict[str, Any]:
    """The limits as one JSON object; `at_once` is what each instance may run now."""
    return {
        "workers": found.workers,
        "workers_total": found.workers_total,
        "types": [
            {
                "type": kind,
                "total": limit.total,
                "instance": limit.instance,
                "paused": limit.paused,
                "at_once": _may_run(kind, limit, live),
            }
            for kind, limit in found.types.items()
        ],
        "instances": [facts["id"] for facts in live],
        "unread": list(found.unread),
    }
