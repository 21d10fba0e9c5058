"""When a call sends its request again. A decision without I/O: events and a clock in."""

from __future__ import annotations

from typing import Final

LONGEST_GAP: Final = 30.0


class ResendTimer:
    """`due` is when to send again, on the caller's clock.

    Again after `resend_after` seconds without news, and soon after a failure that another try
    may not meet; but never sooner after the last send than a gap that doubles from 1 s to 30 s.
    """

    def __init__(self, now: float, resend_after: float) -> None:
        self._after = resend_after
        self._gap = 1.0
        self._sent = now
        self.due = now + resend_after

    def sent(self, now: float) -> None:
        """It was sent again."""
        self._gap = min(self._gap * 2, LONGEST_GAP)
        self._sent = now
        self.due = now + self._after

    def heard(self, now: float, quiet_for: float = 0.0) -> None:
        """Somebody works on it, or will in `quiet_for` seconds."""
        self.due = max(self.due, now + max(quiet_for, 0.0) + self._after)

    def refused(self, now: float) -> None:
        """A consumer could not run it: database away, or shutting down."""
        self.due = max(now, self._sent + min(self._after, self._gap))
