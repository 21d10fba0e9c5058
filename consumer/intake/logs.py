"""Logging of the main process: the instance's format, with librdkafka's own lines routed in."""

from __future__ import annotations

import logging

from processing.logs import LogFormat, RateLimited, bound, configure, get_logger

__all__ = ["LogFormat", "RateLimited", "bound", "configure", "get_logger", "librdkafka_logger"]


def librdkafka_logger() -> logging.Logger:
    """What to give a confluent_kafka client as ``logger=``: librdkafka's lines become ours.

    They are handed over while the client is polled, on the polling thread.
    """
    return logging.getLogger("librdkafka")
