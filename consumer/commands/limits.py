"""``oncepool limits``: what holds while instances run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import redis
import typer

from consumer.admin.journal import connect as journal
from consumer.admin.limits import (
    CHANGED,
    LAST_HOLD,
    NOT_NOTED,
    described,
    limits_redis,
    noted,
    said_of,
)
from consumer.commands.operator import WhoOption, WhyOption, by
from consumer.commands.options import DATABASE, REDIS, JsonOption, with_settings
from consumer.commands.output import fail, print_json, print_table, say
from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from feedback.errors import InvalidLimit, OncepoolError, StoreUnavailable
from feedback.operations.operator_changes import note_changes
from feedback.operations.request_actions import By
from processing.cluster.instances import instances
from processing.cluster.limits import (
    Changes,
    ClusterLimits,
    Figure,
    RedisLimitsStore,
    Setting,
)

app = typer.Typer(no_args_is_help=True)

NONE = "none"
TYPES = ("type", "total", "instance", "paused", "at_once")

TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="Request type.")]


@app.callback()
def limits() -> None:
    """Limits that change while instances run: requests of a type at once, workers, pauses."""


@app.command()
@with_settings(*REDIS)
def show(settings: Settings, *, json: JsonOption = False) -> None:
    """Show the limits, and how many of each type may run at once as the instances now are."""
    with _connected(settings) as client:
        found = RedisLimitsStore(client, settings.redis_prefix).read()
        live = instances(client, settings.redis_prefix)
    _print(found, live, json=json)


def _figure_option(name: str, help_: str) -> Any:
    return typer.Option(envvar=f"ONCEPOOL_LIMITS_{name}", metavar="N|none", help=help_)


TypeOfLimit = Annotated[
    str | None, typer.Argument(metavar="TYPE", help="Request type, for its own limits.")
]
TotalOption = Annotated[
    str | None, _figure_option("TOTAL", "Most of TYPE at once over all instances.")
]
InstanceOption = Annotated[
    str | None,
    _figure_option(
        "INSTANCE", "Most of TYPE at once in one instance, instead of the handler's max_at_once."
    ),
]
WorkersOption = Annotated[
    str | None,
    _figure_option("WORKERS", "Worker processes of each instance, instead of the configured ones."),
]
WorkersTotalOption = Annotated[
    str | None,
    _figure_option(
        "WORKERS_TOTAL", "Worker processes over all instances, shared out; at least one each."
    ),
]


@app.command("set")
@with_settings(*REDIS, *DATABASE)
def set_(
    settings: Settings,
    *,
    type_: TypeOfLimit = None,
    total: TotalOption = None,
    instance: InstanceOption = None,
    workers: WorkersOption = None,
    workers_total: WorkersTotalOption = None,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Set limits; `none` takes one away. Live instances apply them within 5 s."""
    of_type: dict[Figure, str | None] = {"total": total, "instance": instance}
    of_all: dict[Figure, str | None] = {"workers": workers, "workers_total": workers_total}
    if type_ is None and any(of_type.values()):
        raise typer.BadParameter("--total and --instance limit a type: name it")
    if type_ is not None and not any(of_type.values()):
        raise typer.BadParameter("what of the type? Give --total or --instance")
    changes = {
        **{Setting(name, type_): _figure(name, text) for name, text in of_type.items() if text},
        **{Setting(name): _figure(name, text) for name, text in of_all.items() if text},
    }
    if not changes:
        raise typer.BadParameter(
            "nothing to set: TYPE with --total or --instance, or --workers, or --workers-total"
        )
    _change(settings, changes, by(who, why), json=json)


@app.command()
@with_settings(*REDIS, *DATABASE)
def pause(
    settings: Settings,
    *,
    type_: TypeArgument,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Start no request of a type any more; those that come wait in the journal."""
    _change(settings, {Setting("paused", type_): 1}, by(who, why), json=json)


@app.command()
@with_settings(*REDIS, *DATABASE)
def resume(
    settings: Settings,
    *,
    type_: TypeArgument,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Run requests of a paused type again."""
    with _connected(settings) as client:
        found = RedisLimitsStore(client, settings.redis_prefix).read().types.get(type_)
    if found is None or not found.paused:
        say(f"{type_} was not paused")
    _change(settings, {Setting("paused", type_): None}, by(who, why), json=json)


def _figure(name: str, text: str) -> int | None:
    if text.strip().lower() == NONE:
        return None
    try:
        return int(text)
    except ValueError:
        option = name.replace("_", "-")
        raise typer.BadParameter(f"--{option} {text!r}: a whole number, or {NONE}") from None


def _change(settings: Settings, changes: Changes, who_why: By, *, json: bool) -> None:
    with _connected(settings) as client:
        try:
            RedisLimitsStore(client, settings.redis_prefix).change(changes)
        except InvalidLimit as error:
            raise typer.BadParameter(str(error)) from None
    _note(settings, changes, who_why)
    with _connected(settings, CHANGED) as client:
        found = RedisLimitsStore(client, settings.redis_prefix).read()
        live = instances(client, settings.redis_prefix)
    _print(found, live, json=json)
    for line in said_of(changes, found, live):
        say(line)


def _note(settings: Settings, changes: Changes, who_why: By) -> None:
    """Keeps who it was, where there is a journal. The change holds whatever becomes of that."""
    if not settings.database_url:
        return
    try:
        with journal(settings) as connection:
            note_changes(connection, noted(changes), who_why, schema=settings.database_schema)
    except OncepoolError as error:
        say(f"{NOT_NOTED}: {error}")


def _print(found: ClusterLimits, live: list[dict[str, Any]], *, json: bool) -> None:
    rows = described(found, live)
    if json:
        print_json(rows)
        return
    workers = [(name, rows[name]) for name in ("workers", "workers_total") if rows[name]]
    if workers:
        print_table(("limit", "n"), workers)
    if rows["types"]:
        shown = (
            {**row, "at_once": sum(row["at_once"].values()) if row["at_once"] else None}
            for row in rows["types"]
        )
        print_table(TYPES, ([row[column] for column in TYPES] for row in shown))
    if not workers and not rows["types"]:
        typer.echo("nothing is limited beyond the configuration and the handlers' max_at_once")
    for field in found.unread:
        say(f"the limit field {field!r} is unreadable and ignored")


@contextmanager
def _connected(settings: Settings, holds: str = LAST_HOLD) -> Iterator[redis.Redis]:
    settings.require("redis_url")
    try:
        with limits_redis(settings, holds) as client:
            yield client
    except StoreUnavailable as error:
        fail(mask_url(str(error)))
