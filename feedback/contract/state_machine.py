"""Which state of a journal row may follow which, and through whom. docs/states.md shows the table.

Nothing here moves a row: statements do. Tests hold both against this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from feedback.contract.states import State


class Move(NamedTuple):
    """One transition. `start` None: the id had no row; `end` None: its row is deleted."""

    start: State | None
    end: State | None
    through: str


_RUN = "a run"
_RESEND = "a resend, which runs it again"
_CHECK = "`check`, or the late end of its run"
_ENDED = "a run whose handler committed the transaction of its worker"
_OPERATOR = "an operator"
_CANCELLED = "an operator who cancels it while it runs"

_S = State

MOVES: Final[tuple[Move, ...]] = (
    Move(None, _S.WAITING, "a delay, coalescing, a follow-up, a failed attempt, parking"),
    Move(None, _S.WAITING, "a dead letter that an operator retries"),
    Move(None, _S.DEAD, "`oncepool dead-letters import`"),
    Move(None, _S.RUNNING, "the claim of a request with external effects"),
    *(Move(None, end, _RUN) for end in (_S.DONE, _S.REJECTED, _S.FAILED, _S.DEAD)),
    Move(None, _S.SUPERSEDED, "a newer request of its reference"),
    Move(_S.WAITING, _S.WAITING, "a claim, a failed attempt, being given back"),
    Move(_S.WAITING, _S.RUNNING, "the claim of a request with external effects"),
    *(Move(_S.WAITING, end, _RUN) for end in (_S.DONE, _S.REJECTED, _S.FAILED, _S.DEAD)),
    Move(_S.WAITING, _S.CANCELLED, _CANCELLED),
    Move(None, _S.CANCELLED, _CANCELLED),
    Move(_S.FAILED, _S.CANCELLED, _CANCELLED),
    Move(_S.RUNNING, _S.CANCELLED, f"{_CANCELLED}, where nothing happened"),
    Move(_S.IN_DOUBT, _S.CANCELLED, f"{_CANCELLED}, where nothing happened"),
    *(Move(start, _S.IN_DOUBT, _ENDED) for start in (None, _S.WAITING, _S.FAILED)),
    Move(_S.WAITING, None, 'a run of a type with `effect="none"`'),
    Move(_S.WAITING, _S.SUPERSEDED, "a newer request of its reference"),
    Move(_S.WAITING, _S.CANCELLED, _OPERATOR),
    *(
        Move(_S.RUNNING, end, _RUN)
        for end in (_S.DONE, _S.REJECTED, _S.FAILED, _S.WAITING, _S.DEAD, _S.IN_DOUBT)
    ),
    Move(_S.RUNNING, _S.IN_DOUBT, "the sweep of expired claims"),
    Move(_S.FAILED, _S.RUNNING, _RESEND),
    *(
        Move(_S.FAILED, end, _RESEND)
        for end in (_S.DONE, _S.REJECTED, _S.FAILED, _S.WAITING, _S.DEAD, _S.SUPERSEDED)
    ),
    Move(_S.FAILED, _S.WAITING, _OPERATOR),
    Move(_S.IN_DOUBT, _S.RUNNING, "`check`, which says that nothing happened"),
    *(
        Move(_S.IN_DOUBT, end, _CHECK)
        for end in (_S.DONE, _S.REJECTED, _S.FAILED, _S.WAITING, _S.DEAD, _S.IN_DOUBT)
    ),
    *(Move(_S.IN_DOUBT, end, _OPERATOR) for end in (_S.DONE, _S.FAILED, _S.WAITING)),
    Move(_S.DEAD, _S.WAITING, _OPERATOR),
    Move(_S.DEAD, _S.CANCELLED, "an operator who drops it"),
    Move(_S.CANCELLED, _S.WAITING, _OPERATOR),
    *(
        Move(end, None, "`oncepool prune`, after its retention")
        for end in (_S.FAILED, _S.CANCELLED, _S.DONE, _S.REJECTED, _S.SUPERSEDED)
    ),
)

ALLOWED: Final[frozenset[tuple[State | None, State | None]]] = frozenset(
    (move.start, move.end) for move in MOVES
)


def table() -> str:
    """The moves as a Markdown table, one row per pair of states."""
    lines = ["| from | to | through |", "|---|---|---|"]
    pairs: dict[tuple[State | None, State | None], list[str]] = {}
    for move in MOVES:
        pairs.setdefault((move.start, move.end), []).append(move.through)
    for (start, end), causes in pairs.items():
        lines.append(f"| {_name(start)} | {_name(end)} | {'; '.join(causes)} |")
    return "\n".join(lines)


def _name(state: State | None) -> str:
    return "no row" if state is None else f"`{state}`"
