"""What a program hears of its Kafka client's trouble: a line for each outage, not each attempt."""

from __future__ import annotations

import logging
from typing import Any, Final

log = logging.getLogger("oncepool.kafka")

# No trouble: a producer asks for its number again by itself, and for a leader that an answer names
# before it names its address, as one does several times while a broker starts.
_ROUTINE: Final = frozenset({"GETPID", "METADATAUPDATE"})
_ALWAYS: Final = frozenset({"FATAL"})


class OutageLog:
    """What confluent-kafka takes as its `logger`: called while the client is polled.

    librdkafka says of each broker and each attempt that it fails, several times a second.
    """

    def __init__(self) -> None:
        self._told = False

    def log(self, level: int, template: str, *values: Any) -> None:
        """One line of librdkafka's; values[0] is its facility."""
        facility = str(values[0]) if values else ""
        if facility in _ROUTINE:
            level = logging.DEBUG
        elif level >= logging.WARNING and facility not in _ALWAYS:
            if self._told:
                level = logging.DEBUG
            else:
                self._told = True
                template = f"{template} (more of this outage at level debug)"
        log.log(level, template, *values)

    def over(self) -> None:
        """A broker has answered: the next trouble is another one."""
        if self._told:
            self._told = False
            log.info("the brokers answer again")
