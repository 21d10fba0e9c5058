"""Why a start has no end of its own, in words."""

from __future__ import annotations

from typing import Final

from feedback.contract.states import CANCELLED, INSTANCE_DIED, SHUTDOWN, TIMEOUT

LOST: Final = "its worker died while it ran"
END_UNKNOWN: Final = (
    "it may have been begun, and its end is not known: its worker died, or its end could not be"
    " written. Nothing of it is in the journal, and its type is not run twice by itself"
    " (redelivery=False)"
)
"""Of one that no death is blamed on."""
_ENDED: Final = {
    TIMEOUT: "it took longer than its timeout",
    SHUTDOWN: "the consumer stopped while it ran",
    CANCELLED: "it was cancelled while it ran",
    INSTANCE_DIED: "each instance that had it in hand was lost with it, perhaps while it ran",
}


def lost_reason(code: str) -> str:
    """What is told of a start that ended with its worker, by its code."""
    return _ENDED.get(code, LOST)
