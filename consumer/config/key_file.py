"""Writes a new API key's table into a configuration file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from consumer.config.gateway_keys import GatewayKey, in_toml
from consumer.config.loader import TomlFile
from consumer.config.replacing import PRIVATE, replacing
from consumer.config.settings import Settings
from consumer.errors import ConfigError


def add_key(path: Path, name: str, key: GatewayKey) -> None:
    """Adds the table of a key to the file, which is made where there is none.

    The file is the old one or the new one, whatever happens. Raises ConfigError where it has a key
    of that name, can't be read or written, or has its keys in a form that no table goes with.
    """
    path = path.resolve()  # a link stays one
    with _alone(path.parent):
        there = path.exists()
        keys = TomlFile(Settings, path)().get("gateway_keys") if there else None
        if isinstance(keys, dict) and name in keys:
            raise ConfigError(
                f"{path}: there is a key {name!r} already, and nothing was changed: take another"
                " name, or remove its table first"
            )
        try:
            before = path.read_text(encoding="utf-8") if there else ""
            _replace(path, f"{before.rstrip()}\n\n{in_toml(name, key)}\n".lstrip("\n"))
        except OSError as error:
            raise ConfigError(f"{path}: the key can't be written: {error}") from None


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """With no other that adds a key there: what it reads would lack this one.

    The directory is locked, as another file takes the place of the one that is changed. Some file
    systems of networks have no such lock; what can't be opened is told by what is done there.
    """
    lock = None
    with suppress(OSError):
        lock = os.open(directory, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _replace(path: Path, text: str) -> None:
    """In one go. Raises ConfigError."""
    with replacing(path, PRIVATE) as file:
        file.write(text.encode())
        file.flush()
        _check(Path(file.name), path)


def _check(made: Path, path: Path) -> None:
    """What no command could load takes nobody's place."""
    try:
        TomlFile(Settings, made)()
    except ConfigError as error:
        raise ConfigError(
            f"{path}: a table does not go with the keys that are there"
            f" ({str(error).removeprefix(f'{made}: ')}), and nothing was changed: leave --write"
            " out, and add what is printed by hand"
        ) from None
