"""An app of a project that configures logging for all of its programs, and prints to the log."""

from __future__ import annotations

import io
import logging.config
import os
import sys
from typing import Any

from processing import App

logging.config.dictConfig(
    {
        "version": 1,
        "formatters": {"plain": {"format": "%(asctime)s %(name)s %(message)s"}},
        "handlers": {
            "console": {"class": "logging.StreamHandler", "formatter": "plain"},
            "calls": {"class": "logging.FileHandler", "filename": os.environ["SHOP_CALLS"]},
        },
        "loggers": {"httpx": {"handlers": ["calls"], "level": "INFO", "propagate": False}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)
app = App()
log = logging.getLogger("shop")


class _Printed(io.TextIOBase):
    """What is printed becomes lines of the log, as in daemons."""

    def write(self, text: str) -> int:
        if text.strip():
            logging.getLogger("printed").error(text.rstrip())
        return len(text)


sys.stderr = _Printed()


@app.on_worker_start
def add_file() -> None:
    """A file for what goes to the root logger, beside the lines of all others."""
    file = {"class": "logging.FileHandler", "filename": os.environ["SHOP_LOG"]}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"file": file},
            "root": {"handlers": ["file"]},
        }
    )


@app.handler("order")
def order(payload: dict[str, Any]) -> None:
    """Says so, and fails."""
    log.info("it is charged", extra={"order": payload["order"]})
    logging.getLogger("httpx").info("HTTP Request: POST")
    sys.stderr.write("to standard error\n")
    raise ValueError("no such article")
