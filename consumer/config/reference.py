"""Writes docs/configuration.md from the settings themselves.

    python -m consumer.config.reference > docs/configuration.md

A test compares the two, so the page cannot fall behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ByteSize
from pydantic.fields import FieldInfo

from consumer.config.groups import GROUPS, group_of
from consumer.config.librdkafka import CLASSIC_ONLY, CONSUMER_ONLY, FORBIDDEN
from consumer.config.meanings import meaning
from consumer.config.property_twins import TWINS
from consumer.config.settings import Settings, variable
from consumer.config.variables import OTHER_VARIABLES

INTRODUCTION = """\
# Configuration

Every setting has one name. The command line writes it `--max-in-hand`, the environment
`ONCEPOOL_MAX_IN_HAND`, `oncepool.toml` `max_in_hand`. Arguments win over the environment, the
environment over the file, the file over the defaults. `oncepool check` shows each value with the
source that it came from.

The file is `oncepool.toml` in the working directory, or what `--config` or `ONCEPOOL_CONFIG`
names. Tables are only another way to write the same names: `topics` in table `[kafka]` is
`kafka_topics`.

```toml
app = "shop.requests:app"
workers = 8

[kafka]
bootstrap_servers = "kafka-1:9092,kafka-2:9092"
topics = ["orders", "payments"]

[kafka.properties]
client.id = "shop"

[database]
url = "postgresql://shop@db/shop"

[redis]
url = "redis://cache:6379/0"
```

Seconds may be fractions, and no more than ten years.

A name that no setting has is refused, with the nearest one that exists: a misspelt name would
leave a default in force without a word. The same goes for environment variables that begin with
`ONCEPOOL_`, but for those of the local stack, the demo, the tests and the benchmarks
(`ONCEPOOL_STACK_`, `ONCEPOOL_DEMO_`, `ONCEPOOL_TEST_`, `ONCEPOOL_BENCH_`); a client refuses those
alone that are nearly names of its own. An empty variable counts as not set. Sizes take units
(`64MiB`), lists commas.
Passwords and keys are masked wherever a value is shown.

## A schema and a prefix for each application

Ids, types, schedules and limits belong to `database_schema` and `redis_prefix`, not to a topic
or a consumer group. Applications that share a database and a Redis each need a schema and a
prefix of their own, besides topics and a group: with the defaults they would take each other's
waiting requests where both have a type of one name, answer each other's ids, and obey each
other's limits. `oncepool new` writes both; in the environment they are
`ONCEPOOL_DATABASE_SCHEMA` and `ONCEPOOL_REDIS_PREFIX`, and producers of the application need
the same `ONCEPOOL_REDIS_PREFIX`. Instances and `oncepool check` warn where live instances of
another group handle the same types under the same prefix. Several groups of one and the same
application may share them.

## Settings
"""

ESCAPE = str.maketrans({"|": "\\|"})


def reference() -> str:
    """The page."""
    parts = [INTRODUCTION]
    fields = Settings.model_fields
    for group in GROUPS:
        rows = [_row(name, field) for name, field in fields.items() if group_of(name) == group]
        parts.append(_table(group, ("setting", "environment", "default", "meaning"), rows))
    parts.append(PROPERTIES)
    twins = [(f"`{name}`", f"`{twin.setting}`") for name, twin in TWINS.items()]
    parts.append(_table(None, ("property", "setting"), twins))
    parts.append(REFUSED)
    refusals = [(f"`{name}`", reason) for name, reason in FORBIDDEN.items()]
    for condition, table in (
        (
            'with `kafka_protocol = "consumer"`; with `auto` left out where that is used',
            CLASSIC_ONLY,
        ),
        (
            'with `kafka_protocol = "classic"`; with `auto` left out where that is used',
            CONSUMER_ONLY,
        ),
    ):
        refusals += [(f"`{name}`", f"{condition}: {reason}") for name, reason in table.items()]
    parts.append(_table(None, ("property", "why not"), refusals))
    others = [(f"`{name}`", meaning) for name, meaning in OTHER_VARIABLES.items()]
    parts.append("## Other variables\n")
    parts.append(_table(None, ("variable", "stands for"), others))
    return "\n".join(parts)


PROPERTIES = """\
## librdkafka properties

Whatever librdkafka knows may stand in `[kafka.properties]`, or as a JSON object in
`ONCEPOOL_KAFKA_PROPERTIES`, which then takes the place of the whole table. These are settings of
ours by another name:
"""

REFUSED = """\
Refused are these, as the protocol depends on them:
"""


def _table(heading: str | None, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"### {heading}\n"] if heading else []
    lines.append(f"| {' | '.join(head)} |")
    lines.append(f"|{' --- |' * len(head)}")
    lines += [f"| {' | '.join(cell.translate(ESCAPE) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    return (f"`{name}`", f"`{variable(name)}`", _default(name, field), _meaning(name, field))


def _meaning(name: str, field: FieldInfo) -> str:
    text = meaning(name)
    if get_origin(field.annotation) is Literal:
        choices = ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
        return f"{text} One of {choices}."
    return text


def _default(name: str, field: FieldInfo) -> str:
    if name == "workers":
        return "CPUs"
    default: Any = field.get_default(call_default_factory=True, validated_data={})
    if default in ("", None, [], {}):
        return ""
    if isinstance(default, ByteSize):
        return f"`{default.human_readable().replace('.0', '')}`" if default else "`0`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`{','.join(default)}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - the page is its output
