"""The open commit: whose answer it waits for, and what that, or a read-back, says of it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from consumer.intake.commit_errors import NOTHING_SAID, TABLE, UNKNOWN_LIMIT, Verdict, judge
from consumer.intake.events import Answered, Found, Place
from consumer.intake.offset_metadata import LowMark, token_of
from consumer.intake.offset_repair import UNREAD_PAUSES
from feedback.backoff import Backoff
from feedback.contract.record import OFFSET, Record

AGAIN_PAUSES = Backoff(0.05, 1.0)
"""Seconds before a commit that did not land is sent again, by the number of tries."""


class CommitPhase(Enum):
    """Where the open commit stands."""

    SENT = "sent"
    ASKED = "asked"
    UNCLEAR = "unclear"
    AGAIN = "again"


@dataclass(slots=True)
class Piece:
    """One partition's share of the open commit. Without records it only repairs an offset."""

    generation: int
    offset: int
    records: list[Record]
    size: int
    mark: LowMark | None = None
    """As in `SendCommit`."""

    log_gone: bool = False
    """Nobody else can read them any more."""

    @property
    def alone(self) -> list[Record]:
        """Records that nobody else reads, once it has landed: those below its mark, or all."""
        mark, records = self.mark, self.records
        if self.log_gone:
            return records
        if mark is None or not records or records[0][OFFSET] >= mark.offset:
            return []
        return [record for record in records if record[OFFSET] < mark.offset]


@dataclass(slots=True)
class OpenCommit:
    """The commit whose outcome is not known for all of its partitions yet."""

    metadata: str
    pieces: dict[Place, Piece]
    since: float
    phase: CommitPhase = CommitPhase.SENT
    due: float = 0.0
    """When it is asked for, or sent, again."""
    tries: int = 0
    unknown_errors: int = 0
    verdict: Verdict = Verdict.AGAIN
    error: str = ""
    broken: bool = False
    """A connection was lost while it was open: some of its bytes may still be on their way."""
    left: bool = False
    """The membership that it was made in is over."""
    nowhere: bool = False
    """Nothing of it has landed, or can."""

    def waits_for(self, answer: Answered) -> bool:
        """Whether this may be its answer."""
        # None: an error from inside the client may name no partition, so no token.
        return self.phase is CommitPhase.SENT and answer.metadata in (self.metadata, None)

    def failed(self, answer: Answered) -> str | None:
        """The worst error of its answer, after which it has to be asked for; None: all landed."""
        codes = {code for code in (answer.error, *answer.errors.values()) if code}
        if not codes and answer.metadata is None:
            # Nothing says whose answer it is, or of which partitions.
            codes = {NOTHING_SAID}
        if not codes:
            return None
        worst = max(sorted(codes), key=lambda code: judge(code).verdict.value)
        self.error, self.verdict = worst, judge(worst).verdict
        self.unknown_errors = 0 if codes <= TABLE.keys() else self.unknown_errors + 1
        if self.unknown_errors >= UNKNOWN_LIMIT:
            self.verdict = Verdict.FATAL
        if answer.sent:
            self.broken |= any(judge(code).loose for code in codes)
        # Before that it was found not to have landed, or it would not have been sent again.
        self.nowhere = not answer.sent and not self.broken
        # Whichever partitions it names: any of them may have landed.
        self.phase = CommitPhase.ASKED
        return worst

    def landed(self, found: Found) -> list[Place]:
        """The partitions whose committed offset and token are this commit's."""
        return [place for place, piece in self.pieces.items()
                if _is_of(found.get(place), piece.offset, self.metadata)]  # fmt: skip

    def wait(self, known: Collection[Place], now: float) -> None:
        """What is left is sent again after a pause, once it is `known` of all that it is left."""
        clear = all(place in known for place in self.pieces)
        self.phase = CommitPhase.AGAIN if clear else CommitPhase.UNCLEAR
        self.tries += 1
        self.due = now + (AGAIN_PAUSES if clear else UNREAD_PAUSES).after(self.tries)


def _is_of(found: tuple[int, str | None] | None, offset: int, token: str) -> bool:
    """Whether an offset was committed with a token, whatever low mark it tells."""
    return found is not None and found[0] == offset and token_of(found[1]) == token
