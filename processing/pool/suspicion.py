"""What a dead worker, or an unclear COMMIT, makes suspect, and whom a death is blamed on. Pure."""

from __future__ import annotations

from typing import Final

from feedback.contract.states import MOST_CRASHES, WORKER_DIED
from processing.ipc.frames import Backend, Suspect
from processing.ipc.progress import Running
from processing.pool.chunk import Chunk

UNSUSPECTED: Final = Suspect(None, (), ())


def suspect_again(
    earlier: Suspect | None, backend: Backend | None, token: str, *, verdict: str | None = None,
    crashes: int = 0,
) -> Suspect:  # fmt: skip
    """One more start of a record is unclear; all that was suspected before stays.

    A first verdict stands. A claim may carry any of the tokens, and each of the backends may be at
    work yet.
    """
    known = earlier or UNSUSPECTED
    backends = known.backends if backend is None else (*known.backends, backend)
    return Suspect(
        known.verdict or verdict,
        tuple(dict.fromkeys(backends)),
        tuple(dict.fromkeys((*known.tokens, token))),
        known.crashes + crashes,
    )


def suspects_of_death(
    chunk: Chunk,
    culprit: int | None,
    backend: Backend | None,
    token: str,
    terminated: tuple[Running, str] | None,
) -> dict[int, Suspect]:
    """The suspects among a chunk whose worker died, by index.

    `terminated`: the request for which the worker was sent SIGTERM, and why.
    """
    suspects: dict[int, Suspect] = {}
    for index, _ in chunk.remaining():
        verdict, crashes = None, 0
        if index == culprit:
            crashes = 1
            before = 0 if chunk.suspect is None else chunk.suspect.crashes
            verdict = _verdict(chunk, index, before + 1, terminated)
        suspects[index] = suspect_again(
            chunk.suspect, backend, token, verdict=verdict, crashes=crashes
        )
    return suspects


def culprit_of(chunk: Chunk, running: Running | None) -> int | None:
    """The index of the request that ran at the death, where one can be named."""
    if running is not None and running.chunk == chunk.number and running.index is not None:
        return running.index
    # It was alone: whatever killed the worker, a look-up, a COMMIT or a batch handler, may do
    # so again and again, so it is counted.
    return 0 if len(chunk.records) == 1 else None


def _verdict(
    chunk: Chunk, index: int, crashes: int, terminated: tuple[Running, str] | None
) -> str | None:
    if terminated is not None:
        running, reason = terminated
        if running.chunk == chunk.number and running.index in (index, None):
            return reason
    return WORKER_DIED if crashes >= MOST_CRASHES else None
