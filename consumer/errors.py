"""Errors of the main process.

OncepoolError
└── ConsumerError   anything the main process reports
    ├── ConfigError   a setting is unknown, has a wrong value or does not go with another
    │   └── WrongArgument  an option of the command line has a wrong value
    └── KafkaRefused  librdkafka refuses its properties
"""

from __future__ import annotations

from collections.abc import Mapping

from feedback.errors import ConfigurationError, OncepoolError


class ConsumerError(OncepoolError):
    """Anything the main process reports."""


class ConfigError(ConsumerError, ConfigurationError):
    """A setting is unknown, has a wrong value, is missing or does not go with another."""

    def __init__(self, message: str, given: Mapping[str, object] | None = None) -> None:
        """`given`: settings as sources have them, unchecked, where they were read."""
        super().__init__(message)
        self.given = given or {}


class WrongArgument(ConfigError):
    """An option of the command line has a wrong value."""


class KafkaRefused(ConsumerError):
    """librdkafka refuses its properties."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"librdkafka refuses the consumer's properties: {detail}; correct [kafka.properties] "
            "(ONCEPOOL_KAFKA_PROPERTIES)"
        )
