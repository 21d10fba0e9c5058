"""An app whose handlers run until they are asked to stop. The file of its payload tells how far."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from processing import App, Request

app = App()
running: list[Path] = []
"""Files of what this worker runs."""


def note(file: Path, what: str) -> None:
    """Adds a line, whole or not at all."""
    with file.open("a") as opened:
        opened.write(f"{what}\n")


@app.on_terminate
def told() -> None:
    """The worker is about to be killed."""
    for file in running:
        note(file, "told")


@app.handler("computes", timeout=3600)
def computes(payload: dict[str, Any], request: Request[Any]) -> Any:
    """Computes without a pause; then takes its time to come to an end."""
    running[:] = [Path(payload["file"])]
    note(running[0], "begun")
    while not request.stopping:
        sum(range(10_000))
    note(running[0], "stopping")
    time.sleep(payload["seconds"])
    return "stopped"
