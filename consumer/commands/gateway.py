"""``oncepool gateway``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from consumer.commands.options import DATABASE, KAFKA, REDIS, with_settings
from consumer.config.gateway_keys import NAME, GatewayKey, hash_of, in_toml, new_key
from consumer.config.key_file import add_key
from consumer.config.settings import Settings
from processing.ipc.standard_streams import open_missing
from processing.logs import configure

app = typer.Typer()

GATEWAY = tuple(name for name in Settings.model_fields if name.startswith("gateway_"))
OTHERS = ("max_payload", "grace", "kafka_results_topic", "outbox_database_url", "outbox_schema",
          "log_format", "log_level", "tracing")  # fmt: skip

WriteOption = Annotated[
    Path | None,
    typer.Option(
        envvar="ONCEPOOL_GATEWAY_WRITE",
        dir_okay=False,
        metavar="FILE",
        help="Add the new key's table to FILE, as oncepool.toml, instead of printing it.",
    ),
]


@app.command()
@with_settings(*GATEWAY, *KAFKA, *DATABASE, *REDIS, *OTHERS, lasts=True)
def gateway(
    settings: Settings,
    *,
    new_key_: Annotated[
        str | None,
        typer.Option(
            "--new-key",
            envvar="ONCEPOOL_GATEWAY_NEW_KEY",
            metavar="NAME",
            help="Print a new API key, and what to write into oncepool.toml, and end.",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ONCEPOOL_GATEWAY_NEW_ROLES",
            help="What the new key may do: send, read, operate; else send and read.",
            metavar="ROLE",
        ),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            envvar="ONCEPOOL_GATEWAY_NEW_TYPES",
            metavar="TYPE",
            help="Types that the new key is for; * stands for anything.",
        ),
    ] = None,
    write: WriteOption = None,
) -> None:
    """Serve HTTP: requests, statuses, operators' moves; until SIGTERM or Ctrl-C."""
    if new_key_ is not None:
        _make_key(new_key_, role, type_, write)
        return
    for option, value in (("--role", role), ("--type", type_), ("--write", write)):
        if value:
            raise typer.BadParameter(f"{option} goes with --new-key")
    open_missing()
    configure(settings.log_format, settings.log_level)
    # Here, as neither a new key nor --help needs the extra.
    from consumer.gateway import serve

    raise typer.Exit(serve(settings))


def _make_key(
    name: str, roles: list[str] | None, types: list[str] | None, file: Path | None
) -> None:
    """What goes to standard error is TOML, as many append it to a file."""
    if not NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is no key's name: 1 to 100 letters, digits, dots, hyphens, underscores"
        )
    token = new_key()
    fields = {
        "hash": hash_of(token), "roles": roles or ["send", "read"], "types": types or ["*"]
    }  # fmt: skip
    try:
        key = GatewayKey.model_validate(fields)
    except ValidationError as error:
        said = "; ".join(problem["msg"] for problem in error.errors())
        raise typer.BadParameter(f"this key can't stand: {said}") from None
    if file is not None:
        add_key(file, name, key)
    typer.echo("# The key, shown this once. Callers send: Authorization: Bearer KEY", err=True)
    typer.echo(token)
    if not types:
        typer.echo("# It is for requests of all types: --type makes one for some.", err=True)
    if file is not None:
        typer.echo(f"# {file} has its table. A gateway knows it when it starts anew.", err=True)
        return
    typer.echo("# For the gateway's oncepool.toml:", err=True)
    typer.echo(in_toml(name, key), err=True)
