"""Commands called in this process: quicker than a process each, with the same exit codes."""

from __future__ import annotations

from typing import Any

import orjson
from typer.testing import CliRunner, Result

from consumer import cli
from stack import Stack


class Commands:
    """``oncepool("requests", "list")`` with the services of a stack."""

    def __init__(self, stack: Stack, schema: str, prefix: str) -> None:
        self.environ = {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
            "ONCEPOOL_DATABASE_URL": stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": schema,
            "ONCEPOOL_REDIS_URL": stack.redis,
            "ONCEPOOL_REDIS_PREFIX": prefix,
            "ONCEPOOL_WHO": "ann",
        }

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, **changes: str) -> Result:
        """The result; `changes` are variables of the environment."""
        environ = self.environ | changes
        return CliRunner().invoke(cli.app, arguments, env=environ, input=stdin)


def answer(result: Result) -> Any:
    """The JSON that a command printed."""
    assert result.stdout, result.output
    return orjson.loads(result.stdout)
