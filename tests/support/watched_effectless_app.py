"""An app whose workers are watched as those of benchmarks are, and that needs no service."""

from __future__ import annotations

from typing import Any

from benchmarks.watched_app import begin, end
from processing import App

app = App()
app.on_worker_start(begin)
app.on_worker_stop(end)


@app.handler("watched", effect="none")
def nothing(_payload: dict[str, Any]) -> None:
    """Nothing, so that only the way is seen."""
