"""Options that commands share: every setting as an option, --config, --json, and times."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer

from consumer.admin.since import parse_since
from consumer.commands.voice import speak_as
from consumer.config.groups import group_of
from consumer.config.loader import load_settings
from consumer.config.meanings import meaning
from consumer.config.settings import Settings, variable
from consumer.errors import ConfigError
from feedback.tracing.switch import TRACING

Result = TypeVar("Result")

JsonOption = Annotated[
    bool, typer.Option("--json", envvar="ONCEPOOL_JSON", help="Print JSON instead of a table.")
]

CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="ONCEPOOL_CONFIG",
            metavar="FILE",
            help="Configuration file, instead of oncepool.toml in the working directory.",
        ),
    ],
)

CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

KAFKA = ("kafka_bootstrap_servers", "kafka_topics", "kafka_topic", "kafka_properties")
DATABASE = ("database_url", "database_schema")
REDIS = ("redis_url", "redis_prefix")
ALL = tuple(Settings.model_fields)


def with_settings(
    *names: str, lasts: bool = False
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Gives a command the options of the named settings and, as `settings`, their values.

    One that `lasts` says from its start on what it has to say as its log does.

    Each option's environment twin is the setting's variable, which the settings read themselves, so
    that the source that they name is the true one.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        own = inspect.signature(function, eval_str=True)
        kept = [p for p in own.parameters.values() if p.name != "settings"]
        options = [_option(name) for name in names]

        def command(**values: Any) -> Result:
            context: typer.Context = values.pop("context")
            given = {name: values.pop(name) for name in names}
            arguments = {name: given[name] for name in names if _typed(context, name)}
            try:
                settings = load_settings(arguments, config=values.pop("config"))
            except ConfigError as error:
                if lasts:  # what is wrong with the others has to be told as well
                    speak_as(given["log_format"] or error.given.get("log_format"))
                raise
            if lasts:
                speak_as(settings.log_format)
            TRACING.turn(on=settings.tracing)
            return function(**values, settings=settings)

        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (CONTEXT, *kept, *options, CONFIG)
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        vars(command)["__signature__"] = own.replace(parameters=parameters)
        return command

    return decorate


def not_empty(text: str | None) -> str | None:
    """The value of an option, which nothing could mean if it were empty. For its `callback`."""
    if text is not None and not text.strip():
        raise typer.BadParameter("it is empty: leave it out, or give one")
    return text


def moment(text: str | None) -> datetime | None:
    """What --since means. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        return parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(f"--since: {error}") from None


def past(option: str, text: str, now: datetime) -> datetime:
    """What an option means that names a time in the past. Raises typer.BadParameter."""
    try:
        found = parse_since(text, now)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
    if found > now:
        raise typer.BadParameter(f"{option}: {text} is in the future")
    return found


def _option(name: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    base = bool if field.annotation is bool else str
    if name == "app":
        return _app_argument()
    declarations = [f"--{name.replace('_', '-')}"]
    if base is bool:
        declarations = [f"{declarations[0]}/--no-{name.replace('_', '-')}"]
    option = typer.Option(
        *declarations,
        envvar=variable(name),
        help=meaning(name),
        metavar=None if base is bool else _metavar(name),
        rich_help_panel=group_of(name),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[base | None, option],
    )


def _app_argument() -> inspect.Parameter:
    """The one setting that is an argument by position: `oncepool run module:attr`."""
    argument = typer.Argument(
        metavar="[MODULE:ATTR]",
        envvar=variable("app"),
        help="The App with the handlers.",
        show_default=False,
    )
    return inspect.Parameter(
        "app",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, argument],
    )


def _metavar(name: str) -> str:
    annotation = Settings.model_fields[name].annotation
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if annotation is float:
        return "SECONDS"
    if annotation is int or int in get_args(annotation):
        return "N"
    return "TEXT"


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option stood in the command line, rather than in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
