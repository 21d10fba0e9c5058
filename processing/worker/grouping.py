"""Which requests of a chunk share transactions, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from processing.worker.task import Task


def groups(tasks: Sequence[Task], ordering: str) -> list[list[Task]]:
    """Single handlers together, each batch handler, external ones, those that take no tx.

    Where one key is used by several groups its order counts, and each group ends where the next
    one begins.
    """
    kinds = {_kind_of(t) for t in tasks}
    if len(kinds) <= 1:
        found = [list(tasks)] if tasks else []
    elif _keys_meet(tasks):
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
    return "" if handler.wants_tx else "without tx"


def _keys_meet(tasks: Sequence[Task]) -> bool:
    """Whether one key stands in two groups."""
    kinds: dict[bytes, str] = {}
    return any(
        t.envelope.key is not None and kinds.setdefault(t.envelope.key, _kind_of(t)) != _kind_of(t)
        for t in tasks
    )


def _key_of(task: Task) -> bytes:
    return task.envelope.key or b""
