"""``oncepool check``: every setting with its source, and whether all of it works."""

from __future__ import annotations

from dataclasses import asdict

import typer

from consumer.admin.checks import run_checks
from consumer.commands.options import ALL, JsonOption, with_settings
from consumer.commands.output import EXIT_FAILED, print_json, print_table
from consumer.config.settings import Settings

app = typer.Typer()

SIGNS = {"ok": "ok", "warning": "warning", "wrong": "WRONG"}


@app.command()
@with_settings(*ALL)
def check(settings: Settings, json: JsonOption = False) -> None:
    """Show each setting and where it comes from, then try Kafka, PostgreSQL, Redis and the app.

    Exit code 1 when something is wrong.
    """
    rows = [
        {"name": name, "value": settings.shown(name), "source": settings.source(name)}
        for name in ALL
    ]
    if not json:
        print_table(
            ("setting", "value", "source"), ((r["name"], r["value"], r["source"]) for r in rows)
        )
        typer.echo()
    findings = run_checks(settings)
    right = all(finding.state != "wrong" for finding in findings)
    if json:
        print_json({"ok": right, "settings": rows, "checks": [asdict(f) for f in findings]})
    else:
        print_table(
            ("check", "result", "found", "to do"),
            ((f.check, SIGNS[f.state], f.detail, f.advice) for f in findings),
        )
    if not right:
        raise typer.Exit(EXIT_FAILED)
