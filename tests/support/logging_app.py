"""An app of a project that configures logging for all of its programs."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from processing import App

logging.config.dictConfig(
    {
        "version": 1,
        "formatters": {"plain": {"format": "%(asctime)s %(name)s %(message)s"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "root": {"handlers": ["console"], "level": "WARNING"},
    }
)
app = App()
log = logging.getLogger("shop")


@app.on_worker_start
def add_file() -> None:
    """What is added to the root logger gets all lines, too."""
    logging.getLogger().addHandler(logging.FileHandler(os.environ["SHOP_LOG"]))


@app.handler("order")
def order(payload: dict[str, Any]) -> None:
    """Says so, and fails."""
    log.info("it is charged", extra={"order": payload["order"]})
    raise ValueError("no such article")
