"""Which status replaces which: the rule of every store. Pure.

A store that compares by itself follows it: `redis_commands` has it in Lua.
"""

from __future__ import annotations

import re
from typing import Final

from feedback.contract.states import MAX_RUN, WITHOUT_ROW
from feedback.status.status import StatusWrite

WITHOUT_ROW_MARKS: Final = (
    b'"journaled":false', *(f'"code":"{code}"'.encode() for code in sorted(WITHOUT_ROW)),
)  # fmt: skip
"""What stands in a `failed` that no journal row stands behind. One of these is enough: by the codes
those are known that an older version wrote."""
# Ranks that a bump replaces: accepted, running, failed.
_BUMPED: Final = frozenset({b"1", b"2", b"4"})

_LAST_RUN: Final = b"%05d" % MAX_RUN
_WAITING: Final = b"3"
_FAILED: Final = b"4"
_IN_DOUBT: Final = b"5"
_AT: Final = re.compile(rb'"at":"([^"Z]*)')
"""Its time, without the Z: so the text of a time without a fraction sorts before those with one."""


def replacement(standing: bytes | None, write: StatusWrite) -> bytes | None:
    """The value to keep, or None where the standing one stays. The Redis script does the same.

    0. What the journal says for good is set whatever stands.
    1. A final status (rank 9) stays, and replaces any other.
    2. Rank 8 replaces a lower run number, and is replaced by a higher one only.
    3. Else the higher `v` stands; of equal ones the first, but an `in_doubt` is renewed: its `at`
       says when the journal, or the check of its handler, was asked last. Where the run number of
       both is the last that `v` has room for, the later time stands as well, whatever the rank.
    4. A bump replaces only what is accepted, running or failed: what waits, is in doubt or dead
       in the journal is still that, whatever happened to a copy of the request.
    5. `failed`, or `in_doubt`, without a journal row counts runs that the journal never saw, or of
       a row that is gone, so whatever the journal says (rank 3 and up) replaces it even with a
       lower `v`. A `waiting` only where it is not of an earlier time, as pure computation may have
       failed for good since it waited, and its row is gone with that; so whatever replaces a doubt:
       an earlier run that failed does not end it.
    """
    value = write.value
    if write.final:
        return value
    old, new = (standing or b"")[6:12], value[6:12]
    if len(old) < 6 or not old.isdigit():  # none, or not written by us
        return value
    rank, new_rank = old[5:], new[5:]
    if write.bump:
        if rank not in _BUMPED:
            return None
        run = min(int(old[:5]) + 1, MAX_RUN)
        return b"%b%05d%b" % (value[:6], run, value[11:])
    if rank == b"9":
        return None
    later = new > old and not (rank == b"8" and new[:5] == old[:5])
    if old[:5] == new[:5] == _LAST_RUN and _time_of(value) > _time_of(standing or b""):
        later = True  # it may be of a later run
    renewed = new == old and rank == _IN_DOUBT
    unseen = _has_no_row(standing or b"", rank) and new_rank >= _WAITING
    if new_rank == _WAITING or rank == _IN_DOUBT:
        unseen = unseen and _time_of(value) >= _time_of(standing or b"")
    return value if later or renewed or new_rank == b"9" or unseen else None


def _has_no_row(value: bytes, rank: bytes) -> bool:
    if rank == _IN_DOUBT:  # the codes of a `failed` without one are those of doubts with one, too
        return WITHOUT_ROW_MARKS[0] in value
    return rank == _FAILED and any(mark in value for mark in WITHOUT_ROW_MARKS)


def _time_of(value: bytes) -> bytes:
    found = _AT.search(value)
    return b"" if found is None else found[1]
