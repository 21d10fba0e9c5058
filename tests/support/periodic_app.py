"""An app with a handler that comes by the clock."""

from __future__ import annotations

import os

from processing import App, Tick

app = App()


@app.periodic(os.environ["TEST_CRON"], name="hourly", missed="all")
@app.handler("report", retries=1)
def report(tick: Tick) -> str:
    """Says which one it was."""
    return f"{tick.schedule} {tick.at:%H:%M}"
