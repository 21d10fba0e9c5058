"""Errors of the main process.

OncepoolError
└── ConsumerError   anything the main process reports
    └── ConfigError   a setting is unknown, has a wrong value or does not go with another
"""

from __future__ import annotations

from feedback.errors import ConfigurationError, OncepoolError


class ConsumerError(OncepoolError):
    """Anything the main process reports."""


class ConfigError(ConsumerError, ConfigurationError):
    """A setting is unknown, has a wrong value, is missing or does not go with another."""
