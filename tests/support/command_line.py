"""Commands in this process, without services."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from consumer import cli


def oncepool(*arguments: str, **options: Any) -> Result:
    """Runs one. `options` are those of typer's runner: `input`, `env`."""
    return CliRunner().invoke(cli.app, arguments, **options)
