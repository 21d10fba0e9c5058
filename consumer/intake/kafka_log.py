"""librdkafka's log lines: broken connections become events, the rest goes to our log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from processing.logs import RateLimited, get_logger

COORDINATOR = "GroupCoordinator"
"""The name of the connection on which offsets are committed."""

BROKEN = frozenset({"FAIL", "REQTMOUT"})
"""Facilities of lines that say that a connection, or a request on it, is gone."""

NAME = re.compile(r"\[thrd:([^\]]*)\]: ")
RESET = re.compile(r"(?:\[thrd:[^\]]*\]: )?(\S+) \[(\d+)\]: offset reset ")
"""What a line of the facility OFFSET begins with that says: nothing is where the client stood."""


def librdkafka_logger() -> logging.Logger:
    """What to give a confluent_kafka client as ``logger=``: librdkafka's lines become ours.

    They are handed over while the client is polled, on the polling thread.
    """
    return logging.getLogger("librdkafka")


class QuietLog:
    """What a client takes as its `logger` whose caller says by itself that nobody answered.

    Each attempt to connect makes a line: a command without a broker would bury its answer in them.
    """

    def __init__(self) -> None:
        self._plain = librdkafka_logger()

    def log(self, level: int, template: str, *values: Any) -> None:
        """One line, as a ClientLog takes it; what is broken is told at level debug."""
        self._plain.log(logging.DEBUG if values[0] in BROKEN else level, template, *values)


class ClientLog:
    """What confluent-kafka takes as its `logger`: called while the consumer is polled."""

    def __init__(
        self,
        connection_lost: Callable[[str], None],
        offset_reset: Callable[[str, int], None],
    ) -> None:
        """`offset_reset` gets topic and partition."""
        self._connection_lost = connection_lost
        self._offset_reset = offset_reset
        self._log = RateLimited(get_logger("librdkafka"))
        self._plain = librdkafka_logger()
        self.quiet_fatal = False
        """A fatal line is no news: whoever reads the error decides what it means."""

    def log(self, level: int, template: str, *values: Any) -> None:
        """One line: facility, the client's name, and text that begins with the thread's name."""
        facility, text = str(values[0]), str(values[-1])
        thread = NAME.match(text)
        if facility in BROKEN and thread is not None and thread[1].startswith(COORDINATOR):
            self._connection_lost(text)
        if facility == "OFFSET" and (reset := RESET.match(text)) is not None:
            self._offset_reset(reset[1], int(reset[2]))
        if facility == "FATAL" and self.quiet_fatal:
            level = logging.DEBUG
        if level <= logging.DEBUG:
            self._plain.debug("%s %s", facility, text)
        elif facility in BROKEN:
            # Each attempt to connect makes such a line, several a second during an outage.
            self._log.warning("broker connection", facility=facility, detail=text)
        else:
            self._plain.log(level, template, *values)
