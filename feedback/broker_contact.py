"""Whether a client of librdkafka has lost its brokers although they are there. Pure.

A broker that starts knows topics before it knows brokers. A client that asks it then is told of
none, forgets those that it had, and may never look for one again
(https://github.com/confluentinc/librdkafka/issues/5301; seen with 2.16.0 after one such answer
where `metadata.recovery.strategy` is none). Nothing says so: it hears nothing, as when there is
nothing to hear.
It has reported before that all its brokers are down, as it does in each outage; and whoever makes
another client finds them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TIMEOUTS: Final = (0.5, 1.0, 2.0)
"""Seconds to wait for an answer: as many questions in a row without one, and it has lost them."""
PAUSE: Final = 5.0
"""Seconds between two questions."""


class BrokerContact:
    """One client's: it is asked once all brokers were down and others find them again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.outages = 0
        """How often all brokers were down, as far as the client has said so."""
        self._over = 0
        """So many of them are over."""
        self._since = 0.0
        """None was heard since then, while it is doubtful."""
        self._asked_after = 0
        """So many there had been when it was asked last."""
        self._unanswered = 0
        self._next = 0.0

    @property
    def doubtful(self) -> bool:
        """All brokers were down, and nothing shows that the client has found one since."""
        return self._over < self.outages

    @property
    def away_for(self) -> float | None:
        """Seconds in which all were down and none was heard; None: that is over, or never was."""
        return self._clock() - self._since if self.doubtful else None

    def all_down(self) -> None:
        """The client has reported that all its brokers are down; one that is lost may go on so."""
        if not self.doubtful:
            self._unanswered = 0
            self._since = self._clock()
            self._next = self._since + PAUSE
        self.outages += 1

    def heard_from(self, since: int) -> None:
        """The client has heard from a broker after so many of its outages, and of no later one.

        It hands on what came before an outage in the same call in which it reports that.
        """
        if since > self._over:
            self._over = since
            self._unanswered = 0
            self._since = self._clock()
            self._next = self._since + PAUSE

    def due(self) -> float | None:
        """The client is to be asked for metadata now, for so many seconds; None: it is not.

        To be asked only where another client has found brokers since `all_down`.
        """
        if not self.doubtful or self._clock() < self._next:
            return None
        self._asked_after = self.outages
        return TIMEOUTS[self._unanswered]

    def asked(self, *, answered: bool) -> bool:
        """The client was asked. Whether it has lost its brokers: then another has to be made."""
        if not self.doubtful:
            return False  # it has heard from one meanwhile
        self._next = self._clock() + PAUSE
        self._unanswered = 0 if answered else self._unanswered + 1
        lost = self._unanswered == len(TIMEOUTS)
        if lost:
            self._unanswered = 0
            self._over = self.outages
        elif answered:
            self.heard_from(self._asked_after)
        return lost
