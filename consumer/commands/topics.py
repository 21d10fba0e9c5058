"""``oncepool topics create``."""

from __future__ import annotations

import typer

from consumer.admin.kafka_admin import admin_client, create_topics, metadata
from consumer.commands.options import KAFKA, JsonOption, with_settings
from consumer.commands.output import print_json, print_table
from consumer.config.settings import Settings
from feedback.message_size import message_bytes

app = typer.Typer(no_args_is_help=True, help="Topics of the requests.")


@app.callback()
def topics() -> None:
    """Topics of the requests."""


@app.command()
@with_settings(
    *KAFKA, "kafka_results_topic", "topic_partitions", "topic_replication", "max_payload"
)
def create(settings: Settings, json: JsonOption = False) -> None:
    """Create the configured topics, that of the result records among them.

    They take messages with payloads of max_payload. Those that are there already stay as they are.
    """
    settings.require(
        "kafka_bootstrap_servers", *(() if settings.kafka_topic else ("kafka_topics",))
    )
    client = admin_client(settings)
    metadata(client, settings)
    largest = {"max.message.bytes": str(message_bytes(settings.max_payload))}
    results = create_topics(client, settings, largest)
    if json:
        print_json([result._asdict() for result in results])
    else:
        print_table(("topic", "result", "partitions"), results)
