"""Loads settings from arguments, the environment and a TOML file.

Each source refuses names that no setting has, because a misspelt one would silently leave the
default in force.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
)

from consumer.config.gateway_keys import GatewayKey
from consumer.config.masking import mask
from consumer.config.setting_types import OutboxRoute
from consumer.config.settings import DEFAULT, PREFIX, Settings, variable
from consumer.errors import ConfigError, WrongArgument

FILE_NAME = "oncepool.toml"
FILE_VARIABLE = "ONCEPOOL_CONFIG"

OTHER_VARIABLES = {
    "ONCEPOOL_CONFIG": "path of the configuration file",
    "ONCEPOOL_STACK_DATA": "stack --data: folder of the services on this machine",
    "ONCEPOOL_STACK_BROKERS": "stack up --brokers",
    "ONCEPOOL_STACK_BROKER_PROPERTIES": "stack up --broker-property, with spaces between",
    "ONCEPOOL_STACK_CACHE": "folder in which fetched programs of the stack are kept",
    "ONCEPOOL_STACK": "how tests and the demo get their services: embedded or docker",
    "ONCEPOOL_DEMO_QUICK": "demo --quick",
    "ONCEPOOL_DEMO_REQUESTS": "demo --requests",
    "ONCEPOOL_DEMO_NO_OUTBOX": "demo --no-outbox",
    "ONCEPOOL_DEMO_SERVE": "demo --serve",
    "ONCEPOOL_DEMO_SERVE_SECONDS": "demo --serve-seconds",
    "ONCEPOOL_JSON": "every command's --json",
    "ONCEPOOL_RELOAD": "run --reload",
    "ONCEPOOL_ASYNCAPI_VERSION": "asyncapi --api-version",
    "ONCEPOOL_SEND_ID": "send --id",
    "ONCEPOOL_SEND_KEY": "send --key",
    "ONCEPOOL_SEND_WAIT": "send --wait",
    "ONCEPOOL_SEND_DELAY": "send --delay",
    "ONCEPOOL_SEND_FILE": "send --file",
    "ONCEPOOL_LIST_STATE": "requests list --state",
    "ONCEPOOL_LIST_TYPE": "requests list --type",
    "ONCEPOOL_LIST_SINCE": "requests list --since",
    "ONCEPOOL_LIST_KEY": "requests list --key",
    "ONCEPOOL_LIST_REFERENCE": "requests list --reference",
    "ONCEPOOL_LIST_LIMIT": "requests list --limit",
    "ONCEPOOL_RETRY_STATE": "requests retry --state",
    "ONCEPOOL_RETRY_TYPE": "requests retry --type",
    "ONCEPOOL_RETRY_SINCE": "requests retry --since",
    "ONCEPOOL_RETRY_KEY": "requests retry --key",
    "ONCEPOOL_RETRY_REFERENCE": "requests retry --reference",
    "ONCEPOOL_CANCEL_TYPE": "requests cancel --type",
    "ONCEPOOL_CANCEL_SINCE": "requests cancel --since",
    "ONCEPOOL_CANCEL_KEY": "requests cancel --key",
    "ONCEPOOL_CANCEL_REFERENCE": "requests cancel --reference",
    "ONCEPOOL_CANCEL_WAIT": "requests cancel --wait",
    "ONCEPOOL_RESOLVE_AS": "requests resolve --as",
    "ONCEPOOL_RESOLVE_RESULT": "requests resolve --result",
    "ONCEPOOL_RESOLVE_RUN": "requests resolve --run",
    "ONCEPOOL_LETTERS_KIND": "dead-letters --kind",
    "ONCEPOOL_LETTERS_TYPE": "dead-letters list, drop and export --type",
    "ONCEPOOL_LETTERS_REASON": "dead-letters --reason",
    "ONCEPOOL_LETTERS_SINCE": "dead-letters --since",
    "ONCEPOOL_LETTERS_SEARCH": "dead-letters --search",
    "ONCEPOOL_LETTERS_LIMIT": "dead-letters list --limit",
    "ONCEPOOL_LETTERS_ID": "dead-letters retry --id",
    "ONCEPOOL_LETTERS_RETRY_TYPE": "dead-letters retry --type",
    "ONCEPOOL_LETTERS_RESEND": "dead-letters retry --resend",
    "ONCEPOOL_LETTERS_FOLLOW": "dead-letters export --follow",
    "ONCEPOOL_PRUNE_OLDER_THAN": "prune --older-than",
    "ONCEPOOL_PRUNE_RESEND_WINDOW": "prune --resend-window",
    "ONCEPOOL_PRUNE_DRY_RUN": "prune --dry-run",
    "ONCEPOOL_WHO": "--who of every command that moves requests",
    "ONCEPOOL_WHY": "--why of every command that moves requests",
    "ONCEPOOL_YES": "--yes of every command that asks",
    "ONCEPOOL_STATS_WATCH": "stats --watch",
    "ONCEPOOL_STATS_MINUTES": "stats --minutes",
    "ONCEPOOL_GATEWAY_NEW_KEY": "gateway --new-key",
    "ONCEPOOL_GATEWAY_NEW_ROLES": "gateway --role",
    "ONCEPOOL_GATEWAY_NEW_TYPES": "gateway --type",
    "ONCEPOOL_GATEWAY_WRITE": "gateway --write",
    "ONCEPOOL_OUTBOX_SQL": "outbox migrate --sql",
    "ONCEPOOL_OUTBOX_STATE": "outbox list, retry and drop --state",
    "ONCEPOOL_OUTBOX_TYPE": "outbox list, retry and drop --type",
    "ONCEPOOL_OUTBOX_SENDER": "outbox list, retry and drop --sender",
    "ONCEPOOL_OUTBOX_OLDER_THAN": "outbox prune --older-than",
    "ONCEPOOL_OUTBOX_LIMIT": "outbox list --limit",
    "ONCEPOOL_LIMITS_TOTAL": "limits set --total",
    "ONCEPOOL_LIMITS_INSTANCE": "limits set --instance",
    "ONCEPOOL_LIMITS_WORKERS": "limits set --workers",
    "ONCEPOOL_LIMITS_WORKERS_TOTAL": "limits set --workers-total",
}
"""Variables that are not settings: options of single commands, and what other parts read."""

OTHER_PREFIXES = ("ONCEPOOL_STACK_", "ONCEPOOL_DEMO_", "ONCEPOOL_TEST_", "ONCEPOOL_BENCH_")
"""Variables of the local stack, the demo, the tests and the benchmarks."""

OF_TABLES = (*GatewayKey.model_fields, *OutboxRoute.model_fields)
"""Options of the tables that are themselves the value of a setting."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is most like `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


class Environment(EnvSettingsSource):
    """Variables ``ONCEPOOL_<NAME>`` of `environ`; an empty one counts as not set."""

    def __init__(self, settings_class: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(settings_class, env_prefix=PREFIX, env_ignore_empty=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._environ.items() if value != ""}

    def __call__(self) -> dict[str, Any]:
        """Setting -> value, for the settings that have a variable."""
        settings = {PREFIX + name.upper() for name in self.settings_cls.model_fields}
        known = settings | OTHER_VARIABLES.keys()
        for name in self._environ:
            upper = name.upper()
            if not upper.startswith(PREFIX) or upper.startswith(OTHER_PREFIXES):
                continue
            if upper not in known:
                raise ConfigError(
                    f"environment variable {name}: there is no such setting"
                    f"{nearest(upper, known)}; unset it or correct its name"
                )
        return super().__call__()


class TomlFile(PydanticBaseSettingsSource):
    """A TOML file; ``topics`` in table ``[kafka]`` is the setting ``kafka_topics``."""

    def __init__(self, settings_class: type[BaseSettings], path: Path | None) -> None:
        self._path = path
        super().__init__(settings_class)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Not used: all values are read at once."""
        raise NotImplementedError

    def __call__(self) -> dict[str, Any]:
        """Setting -> value, for the settings that the file names."""
        if self._path is None:
            return {}
        values: dict[str, Any] = {}
        self._flatten(read_toml(self._path), (), values)
        return values

    def _flatten(
        self, table: Mapping[str, Any], parents: tuple[str, ...], values: dict[str, Any]
    ) -> None:
        fields = self.settings_cls.model_fields
        for key, value in table.items():
            path = (*parents, key)
            name = "_".join(path)
            if name in fields:
                if name in values:
                    raise ConfigError(f"{self._path}: {name} is given twice; keep one")
                values[name] = value
            elif isinstance(value, dict) and any(f.startswith(name + "_") for f in fields):
                self._flatten(value, path, values)
            else:
                shown = ".".join(path)
                raise ConfigError(
                    f"{self._path}: {shown}: there is no such setting"
                    f"{nearest(name, fields)}; remove it or correct its name"
                )


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises ConfigError where it can't be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file can't be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not TOML: {error}") from error


def find_file(config: Path | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    """The configuration file: `config`, else ONCEPOOL_CONFIG, else oncepool.toml in `folder`."""
    if config is not None:
        return config
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    default = folder / FILE_NAME
    return default if default.is_file() else None


def working_directory() -> Path:
    """Where this process is. Raises ConfigError where that directory was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"the working directory is gone ({error.strerror}): change to one that is there"
        ) from None


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Reads all sources and returns the settings with the source of each known.

    `arguments` maps setting names to values, None meaning not given. Raises ConfigError that says
    setting, source, value and what is allowed.
    """
    environ = os.environ if environ is None else environ
    arguments = {name: value for name, value in (arguments or {}).items() if value is not None}
    for name in arguments:
        if name not in Settings.model_fields:
            hint = nearest(name, Settings.model_fields)
            raise ConfigError(f"argument {name}: there is no such setting{hint}")
    path = find_file(config, environ, folder or working_directory())
    sources: list[tuple[str, PydanticBaseSettingsSource]] = [
        ("argument", InitSettingsSource(Settings, arguments)),
        ("environment", Environment(Settings, environ)),
        (str(path), TomlFile(Settings, path)),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for label, source in sources:
        for name, value in source().items():
            origin = f"{label} {variable(name)}" if label == "environment" else label
            if name not in values:
                values[name] = value
                origins[name] = origin
    try:
        settings = Settings(**values)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors() if problem["loc"]}
        kind = WrongArgument if wrong & arguments.keys() else ConfigError
        raise kind(_explain(error, values, origins)) from None
    return settings.remember(origins)


def _explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line for each wrong value: setting, value, source, what is allowed."""
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        message = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            lines.append(message)
            continue
        name, *inside = map(str, problem["loc"])
        value = mask(name, values.get(name))
        if problem["type"] == "extra_forbidden":
            message = f"there is no such option{nearest(inside[-1], OF_TABLES)}"
        place = f"{'.'.join(inside)}: " if inside and inside[-1] != "[key]" else ""
        line = f"{name} = {value!r} (from {origins.get(name, DEFAULT)}): {place}{message}"
        if line not in lines:
            lines.append(line)
    return "\n".join(lines)
