"""``oncepool asyncapi``: the types that an app handles, for producers and their tools."""

from __future__ import annotations

import contextlib
import json as standard_json
import sys
from pathlib import Path
from typing import Annotated

import typer

from consumer.admin.asyncapi import RequestPlace, asyncapi_document
from consumer.commands.options import JsonOption, not_empty, with_settings
from consumer.commands.output import fail, print_json
from consumer.config.packages import hidden_package
from consumer.config.settings import Settings
from processing.handlers.loading import load_app

app = typer.Typer()


@app.command()
@with_settings("app", "kafka_bootstrap_servers", "kafka_topics", "kafka_group")
def asyncapi(
    settings: Settings,
    *,
    api_version: Annotated[
        str,
        typer.Option(
            "--api-version",
            envvar="ONCEPOOL_ASYNCAPI_VERSION",
            callback=not_empty,
            help="Version of the app's own types, as the document has it.",
        ),
    ] = "1.0.0",
    json: JsonOption = False,
) -> None:
    """Print an AsyncAPI 3.0 document of the app's types: topics, headers, payloads, results.

    Asks no service. The app is imported, and none of its hooks runs.
    """
    settings.require("app", "kafka_topics")
    if hidden := hidden_package(Path.cwd()):
        fail(hidden)
    with contextlib.redirect_stdout(sys.stderr):  # what the app prints is no part of the document
        document = asyncapi_document(
            load_app(settings.app),
            RequestPlace(
                group=settings.kafka_group,
                topics=settings.kafka_topics,
                servers=settings.kafka_bootstrap_servers,
            ),
            version=api_version,
        )
    if json:
        print_json(document)
    else:
        typer.echo(standard_json.dumps(document, indent=2, ensure_ascii=False))
