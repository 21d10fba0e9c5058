"""What the metadata of a committed offset says: whose it is, and from where to read. Pure.

    1;<instance>-<number>;<mark>[;<times>[;<begun>]]

A version, the token, the *low mark*: the lowest offset of the partition that is not finished, and
how often what lies between mark and committed offset has been read again without an end to what
stands at the mark. Who lets a partition go in peace adds the lowest offset that may have been begun
and is not finished: below it nobody has entered a handler in vain. Older versions leave all this
out, other programs write what they like.
"""

from __future__ import annotations

from typing import Final, NamedTuple

VERSION = "1"
"""Of the metadata's form."""
MOST_TIMES: Final = 5
"""How often a gap is read again, while what stands at its mark has no end, before anything of it is
given up."""
_MOST_DOUBLED: Final = 40
"""Above all gaps, whatever the metadata says."""


class LowMark(NamedTuple):
    """What a commit tells of a partition."""

    offset: int
    """The lowest that is not finished."""
    times: int = 0
    """How often the gap above it was read again."""
    begun: int | None = None
    """The lowest that may have been begun and is not finished; None: not known."""


class UnfinishedGap(NamedTuple):
    """What of a partition is committed and was not known to be finished."""

    mark: int
    """The first offset of it."""
    committed: int
    """The offset behind it."""
    times: int = 0
    """How often it was read again before."""
    token: str = ""
    """Of the commit that told the mark."""
    begun: int | None = None
    """Below it nothing was begun that is not finished; None: whoever died could not tell."""

    @property
    def worn_to(self) -> int:
        """What lies below it is read for the last time, if what stands at the mark has no end.

        At first that is one offset, and twice as many with each further owner that dies over the
        gap: what ends them all is passed in few steps, and little goes with it.
        """
        if self.times < MOST_TIMES:
            return self.mark
        offsets = 1 << min(self.times - MOST_TIMES, _MOST_DOUBLED)
        return min(self.mark + offsets, self.committed)


def metadata_of(token: str, mark: LowMark | None) -> str:
    """The metadata of a commit; `token` as `1;<instance>-<number>;`."""
    if mark is None:
        return token
    if mark.begun is not None:
        return f"{token}{mark.offset};{mark.times};{mark.begun}"
    return f"{token}{mark.offset};{mark.times}" if mark.times else f"{token}{mark.offset}"


def token_of(metadata: str | None) -> str | None:
    """The token that metadata of this program's begins with; None of other programs'."""
    fields = (metadata or "").split(";")
    if len(fields) < 3 or fields[0] != VERSION:
        return None
    return f"{VERSION};{fields[1]};"


def gap_of(committed: int, metadata: str | None) -> UnfinishedGap | None:
    """What has to be read again below a committed offset; None where nothing is said of it.

    Raises ValueError where what is said cannot be.
    """
    token = token_of(metadata)
    if not metadata or committed < 0 or token is None:
        return None
    mark, times, begun, *_ = (*metadata.split(";")[2:], "", "")
    if not mark:
        return None  # an older version's, or one that reads nothing again
    known = _number(begun) if begun.isdigit() else None
    gap = UnfinishedGap(_number(mark), committed, _number(times or "0"), token, known)
    if gap.mark > committed:
        raise ValueError(f"the low mark {mark} lies above the committed offset {committed}")
    return gap if gap.mark < committed else None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise ValueError(f"no number: {text[:40]!r}")
    return int(text)
