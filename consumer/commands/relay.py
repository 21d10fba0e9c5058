"""``oncepool relay``: sends what stands in an outbox."""

from __future__ import annotations

import typer

from consumer.commands.options import KAFKA, REDIS, with_settings
from consumer.config.settings import Settings
from consumer.relay.process import run_relay
from processing.ipc.standard_streams import open_missing
from processing.logs import configure

app = typer.Typer()

SETTINGS = (
    *("outbox_database_url", "outbox_schema", "outbox_routes", "outbox_resend_after"),
    *("outbox_resend_after_by_type", "outbox_max_sends", "outbox_inbox", *KAFKA),
    *("kafka_results_topic", *REDIS),
    *("health_host", "health_port", "log_format", "log_level", "tracing"),
)


@app.command()
@with_settings(*SETTINGS, lasts=True)
def relay(settings: Settings) -> None:
    """Send the requests of an outbox, and follow them to their end, until SIGTERM or Ctrl-C.

    Exit code 0 after a clean end, 1 where it can't work, 3 where a thread had to be left behind.
    """
    open_missing()
    settings.require("outbox_database_url")
    configure(settings.log_format, settings.log_level)
    raise typer.Exit(run_relay(settings))
