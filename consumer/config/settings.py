"""The settings of one instance: arguments > environment > oncepool.toml > defaults.

`Settings(...)` itself reads nothing, so that code and tests can make one from values alone;
`loader.load_settings` reads the three sources and remembers where each value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import PrivateAttr, model_validator

from consumer.config.fields import SettingFields
from consumer.config.masking import mask
from consumer.config.validation import wrong_combinations
from consumer.errors import ConfigError

PREFIX = "ONCEPOOL_"
DEFAULT = "default"


class Settings(SettingFields):
    """Settings that are right one by one and together. `fields.py` says what each means."""

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _combinations(self) -> Settings:
        for problem in wrong_combinations(self):
            raise ValueError(problem)
        return self

    def source(self, name: str) -> str:
        """Where the value of setting `name` came from."""
        if name in self._sources:
            return self._sources[name]
        return "given" if name in self.model_fields_set else DEFAULT

    def remember(self, sources: Mapping[str, str]) -> Settings:
        """Notes where each value came from, and returns these settings."""
        self._sources = dict(sources)
        return self

    def shown(self, name: str) -> Any:
        """The value of setting `name` with its secrets masked."""
        return mask(name, getattr(self, name))

    def require(self, *names: str) -> None:
        """Raises ConfigError naming each of `names` that is not set."""
        missing = [name for name in names if getattr(self, name) in ("", [])]
        if missing:
            ways = "; ".join(f"{n}: set {variable(n)} or {n} in oncepool.toml" for n in missing)
            raise ConfigError(f"needed and not set: {ways}")

    def __repr_args__(self) -> Any:
        """Names and values for repr(), secrets masked."""
        return [(name, self.shown(name)) for name in type(self).model_fields]


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()
