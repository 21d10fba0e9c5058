"""Whether a sender's brokers answer, also while there is nothing to send to them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from feedback.outbox.relay.outage import RelayOutage

log = logging.getLogger("oncepool.relay")

ASK_EVERY: Final = 10.0
"""Seconds between two questions to a service of which nothing else is heard."""


class BrokerWatch:
    """Asks in a thread of its own, which no row waits for, unless some rows were just confirmed."""

    def __init__(
        self,
        sender: str,
        ask: Callable[[], str | None],
        confirmed: Callable[[], int],
        stop: threading.Event,
    ) -> None:
        """`ask` says why no broker answers, `confirmed` how many rows were; `stop` ends it."""
        self._sender = sender
        self._ask = ask
        self._confirmed = confirmed
        self._stop = stop
        self._seen = 0
        self._brokers = RelayOutage("not asked yet")
        self._thread = threading.Thread(target=self._run, name=f"watch-{sender}", daemon=True)

    @property
    def away(self) -> str | None:
        """Why the brokers count as away; None where they have answered."""
        return self._brokers.why

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            why = self._look()
            if why is None:
                if self._brokers.end():
                    log.info("sender %s: the brokers answer", self._sender)
            elif self._brokers.begin(why):
                log.warning("sender %s: the brokers are away: %s", self._sender, why)
            self._stop.wait(ASK_EVERY)

    def _look(self) -> str | None:
        confirmed = self._confirmed()
        if confirmed != self._seen:
            self._seen = confirmed
            return None
        try:
            return self._ask()
        except Exception as error:
            log.exception("sender %s: the brokers could not be asked", self._sender)
            return f"they could not be asked: {error!r}"
