"""``oncepool run``: the consumer itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consumer.commands.options import ALL, with_settings
from consumer.commands.output import fail
from consumer.config.packages import hidden_package
from consumer.config.settings import Settings
from consumer.service.reload import run_reloading
from processing.logs import configure

app = typer.Typer()

NEEDED = ("app", "kafka_bootstrap_servers", "kafka_topics", "database_url", "redis_url")


@app.command()
@with_settings(*ALL, lasts=True)
def run(
    settings: Settings,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            envvar="ONCEPOOL_RELOAD",
            help="Restart when Python files below the working directory change (development).",
        ),
    ] = False,
) -> None:
    """Run the consumer until SIGTERM or Ctrl-C.

    Exit code 0 after a clean drain, 1 on a fatal error, 3 when something had to be killed at the
    end of the grace.
    """
    settings.require(*NEEDED)
    if hidden := hidden_package(Path.cwd()):
        fail(hidden)
    configure(settings.log_format, settings.log_level)
    if reload:
        raise typer.Exit(run_reloading())
    # Here, as the process that only watches files needs none of it.
    from consumer.service.service import run_service

    raise typer.Exit(run_service(settings))
