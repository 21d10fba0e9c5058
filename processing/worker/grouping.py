"""Which requests of a chunk share transactions, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from feedback.contract.record import KEY, PARTITION, TOPIC, is_due
from processing.worker.task import Task


def lane_of(task: Task, ordering: str) -> Hashable:
    """What may not be reordered: its key, its partition, or nothing (None)."""
    record = task.record
    if ordering == "key":
        return record[KEY]
    if ordering == "partition" and not is_due(record):
        return record[TOPIC], record[PARTITION]
    return None


def groups(tasks: Sequence[Task], ordering: str) -> list[list[Task]]:
    """Single handlers together, each batch handler, external and pure ones, those without a tx.

    Where one lane is in several groups its order counts, and each group ends where the next one
    begins.
    """
    kinds = {_kind_of(t) for t in tasks}
    if len(kinds) <= 1:
        found = [list(tasks)] if tasks else []
    elif _lanes_meet(tasks, ordering):
        found = _runs(tasks)
    else:
        found = [[t for t in tasks if _kind_of(t) == kind] for kind in sorted(kinds)]
    if ordering != "partition":
        for group in found:
            # Handlers lock the rows of their keys: in one order, or chunks deadlock.
            group.sort(key=_key_of)
    return found


def once_each(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """(the first of each id, the rest): a second message of one id waits for the first's row."""
    ids: set[str] = set()
    first: list[Task] = []
    rest: list[Task] = []
    for task in tasks:
        (rest if task.envelope.id in ids else first).append(task)
        ids.add(task.envelope.id)
    return first, rest


def _runs(tasks: Sequence[Task]) -> list[list[Task]]:
    found: list[list[Task]] = []
    last = None
    for task in tasks:
        if (kind := _kind_of(task)) != last:
            found.append([])
            last = kind
        found[-1].append(task)
    return found


def _kind_of(task: Task) -> str:
    handler = task.handler
    if handler is None:
        return ""
    if handler.effect == "external":
        return "external"
    if handler.batch:
        return f"batch {handler.type}"
    if handler.effect == "none":
        return "none"
    return "" if handler.wants_tx else "without tx"


def _lanes_meet(tasks: Sequence[Task], ordering: str) -> bool:
    """Whether one lane is in two groups."""
    kinds: dict[Hashable, str] = {}
    return any(
        (lane := lane_of(t, ordering)) is not None
        and kinds.setdefault(lane, _kind_of(t)) != _kind_of(t)
        for t in tasks
    )


def _key_of(task: Task) -> bytes:
    return task.envelope.key or b""
