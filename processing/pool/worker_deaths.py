"""What a dead worker, or an unclear COMMIT, makes suspect, and whom a death is blamed on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from feedback.backend import Backend
from feedback.contract.record import Record
from feedback.contract.states import MOST_CRASHES, WORKER_DIED
from processing.ipc.frames import Loss, Report, Suspect
from processing.ipc.progress import Running
from processing.pool.chunk import Chunk
from processing.pool.terminated import LOOP_BLOCKED, Terminated
from processing.pool.worker_state import Worker

UNSUSPECTED: Final = Suspect(None, (), ())


def death_cause(worker: Worker, cause: str) -> str | None:
    """Under what a worker's end counts; None where it was told to end, and had nothing in hand.

    `cause` is how the process ended: "signal SIGKILL", "exit code 1".
    """
    if worker.leaving and not worker.chunks:
        return None
    if not worker.ready:
        return "start"
    if worker.terminated is not None:
        return worker.terminated.why
    return "exit" if cause.startswith("exit") else cause.removeprefix("signal ")


def suspect_again(
    earlier: Suspect | None, backends: Sequence[Backend], token: str, *,
    verdict: str | None = None, reason: str | None = None, loss: Loss | None = None,
    unclear: bool = False,
) -> Suspect:  # fmt: skip
    """One more start of a record is unclear; all that was suspected before stays.

    A first verdict stands. A claim may carry any of the tokens, and each of the backends may be at
    work yet.
    """
    known = earlier or UNSUSPECTED
    return Suspect(
        known.verdict or verdict,
        tuple(dict.fromkeys((*known.backends, *backends))),
        tuple(dict.fromkeys((*known.tokens, token))),
        known.crashes + (loss is not None),
        known.reason if known.verdict else reason,
        known.losses if loss is None else (*known.losses, loss),
        unclear=known.unclear + unclear,
    )


def suspects_of_report(
    chunk: Chunk, report: Report, backends: Sequence[Backend], token: str
) -> dict[int, Suspect]:
    """What is newly suspected of what comes back of a chunk whose worker lives, by index."""
    # It had a start of its own, and nobody but it was at work on the connection.
    alone = chunk.suspect is not None and report.database_up
    suspects = {
        i: suspect_again(chunk.suspect, backends, token, unclear=alone) for i in report.unclear
    }
    if not report.refused or chunk.suspect is None:
        return suspects
    before = dict.fromkeys(report.returned, chunk.suspect)
    return {i: s._replace(refused=True) for i, s in (before | suspects).items()}


class Left(NamedTuple):
    """What a dead worker left."""

    chunks: list[tuple[Chunk, dict[int, Suspect]]]
    """Those it had, the one that it ran last, with the suspects among their records."""
    blamed: list[Record]
    """Whose fault that is."""


def left_by(
    worker: Worker,
    running: Running | None,
    now: float,
    cause: str,
    token_of: Callable[[Chunk], str],
) -> Left:
    """What becomes of the chunks of a dead worker, which had some.

    It ran the first of them, or all where they are calls. Of calls those are to blame that were
    told to end and did not, and the one that the event loop was in; none that waited for the loop.
    """
    calls = bool(worker.seats.taken)
    left = Left([], [])
    for place, chunk in enumerate(worker.chunks):
        if place and not calls:
            left.chunks.insert(0, (chunk, {}))
            continue
        told, culprit, alone = worker.terminated, None, len(worker.chunks) == 1
        if chunk.seat is not None:
            told = worker.seats.told.get(chunk.seat)
        if told is not None and told.why == LOOP_BLOCKED:
            told, alone = None, False
        on_stage = running is not None and running.chunk == chunk.number
        if not calls or alone or on_stage:
            culprit = culprit_of(chunk, running, None if calls else told)
        elif told is not None:
            culprit = 0
        seen = running if on_stage else None if told is None or not calls else told.running
        loss = (now if seen is None else seen.started, now, cause)
        suspects = suspects_of_death(chunk, culprit, worker.backends, token_of(chunk), told, loss)
        left.chunks.append((chunk, suspects))
        if culprit is not None:
            left.blamed.append(chunk.records[culprit])
    return left


def suspects_of_death(
    chunk: Chunk,
    culprit: int | None,
    backends: Sequence[Backend],
    token: str,
    terminated: Terminated | None,
    loss: Loss,
) -> dict[int, Suspect]:
    """The suspects among a chunk whose worker died, by index.

    `terminated`: the request that the worker was asked to end; `loss`: the culprit's start.
    """
    suspects: dict[int, Suspect] = {}
    for index, _ in chunk.remaining():
        verdict = reason = None
        if index == culprit:
            before = 0 if chunk.suspect is None else chunk.suspect.crashes
            verdict, reason = _verdict(chunk, index, before + 1, terminated)
        suspects[index] = suspect_again(
            chunk.suspect, backends, token, verdict=verdict, reason=reason,
            loss=loss if index == culprit else None,
        )  # fmt: skip
    return suspects


def culprit_of(
    chunk: Chunk, running: Running | None, terminated: Terminated | None = None
) -> int | None:
    """The index of the request that ran at the death, where one can be named."""
    if running is not None and running.chunk == chunk.number and running.index is not None:
        if terminated is None or not terminated.killed:
            return running.index
        # Where the one that was meant ended at that very moment, nobody is to blame.
        return running.index if terminated.is_about(chunk.number, running.index) else None
    # It was alone: whatever killed the worker, a look-up, a COMMIT or a batch handler, may do
    # so again and again, so it is counted.
    return 0 if len(chunk.records) == 1 else None


def _verdict(
    chunk: Chunk, index: int, crashes: int, terminated: Terminated | None
) -> tuple[str | None, str | None]:
    """The verdict, and what is told with it."""
    if terminated is not None and terminated.is_about(chunk.number, index):
        return terminated.why, terminated.reason
    return (WORKER_DIED if crashes >= MOST_CRASHES else None), None
