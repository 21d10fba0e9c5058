"""Loads settings from arguments, the environment and a TOML file.

Each source refuses names that no setting has, because a misspelt one would silently leave the
default in force.
"""

from __future__ import annotations

import difflib
import os
import re
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
from consumer.config.property_twins import take_twins
from consumer.config.setting_types import OutboxRoute
from consumer.config.settings import DEFAULT, PREFIX, Settings, variable
from consumer.config.variables import OTHER_PREFIXES, OTHER_VARIABLES
from consumer.errors import ConfigError, WrongArgument

FILE_NAME = "oncepool.toml"
FILE_VARIABLE = "ONCEPOOL_CONFIG"

CLOSE = 0.75
"""How much of a name is as in another one that it is taken for."""
ALIKE = 0.6
"""The same of a word; below it is another word."""
ABBREVIATED = 0.8
"""How much a word is like one that it stands for."""
_WORDS = re.compile(r"[_.\-]")

OF_TABLES = (*GatewayKey.model_fields, *OutboxRoute.model_fields)
"""Options of the tables that are themselves the value of a setting."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is most like `name`, or nothing."""
    likeness, best = max(((_likeness(name, one), one) for one in known), default=(0.0, ""))
    return f"; did you mean {best}?" if likeness >= CLOSE else ""


def _likeness(name: str, known: str) -> float:
    """From 0 to 1, word for word, so that what many names begin with makes none like another."""
    words, others = (_WORDS.split(one.removeprefix(PREFIX)) for one in (name, known))
    if "".join(words) == "".join(others):
        return 1.0
    shares = [
        sum(max(_alike(word, other) for other in those) for word in these) / len(these)
        for these, those in ((words, others), (others, words))
    ]
    return sum(shares) / 2


def _alike(word: str, other: str) -> float:
    ratio = difflib.SequenceMatcher(None, word, other).ratio()
    if word[:1] == other[:1] and (_is_within(word, other) or _is_within(other, word)):
        ratio = max(ratio, ABBREVIATED)
    return ratio if ratio >= ALIKE else 0.0


def _is_within(word: str, other: str) -> bool:
    """Whether its letters stand in the other one, in order: db in database."""
    letters = iter(other)
    return all(letter in letters for letter in word)


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


def _log_format_in(path: Path | None) -> dict[str, Any]:
    """How a file says that errors are told, whatever else is wrong."""
    try:
        tables = read_toml(path) if path else {}
    except ConfigError:
        return {}
    log = tables.get("log")
    return {
        "log_format": tables.get("log_format", log.get("format") if isinstance(log, dict) else None)
    }


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
        try:
            given = source()
        except ConfigError as error:
            error.given = _log_format_in(path)
            raise
        twins = take_twins(given)
        for name, value in given.items():
            origin = f"{label} {variable(name)}" if label == "environment" else label
            if name not in values:
                values[name] = value
                origins[name] = origin + twins.get(name, "")
    try:
        settings = Settings(**values)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors() if problem["loc"]}
        kind = WrongArgument if wrong & arguments.keys() else ConfigError
        raise kind(_explain(error, values, origins), values) from None
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
