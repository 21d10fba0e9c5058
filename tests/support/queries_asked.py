"""The queries of deploy/: rules and dashboard, and what a scrape has of what they ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.support.promql import (
    each_value,
    plain,
    queries_of_dashboard,
    queries_of_rules,
    selectors,
    selects,
    series_of,
)

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES_FILE = DEPLOY / "prometheus" / "oncepool.rules.yml"
RULES: dict[str, Any] = yaml.safe_load(RULES_FILE.read_text())
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "oncepool.json").read_text())
QUERIES = [*queries_of_rules(RULES), *queries_of_dashboard(DASHBOARD)]


def asked_in_vain(scrape: str) -> set[str]:
    """Of metrics that a scrape has: what queries ask for and it has nothing of."""
    shown = series_of(scrape)
    names = {one.name for one in shown}
    return {
        str(one)
        for query in QUERIES
        for selector in selectors(plain(query.expression))
        for one in each_value(selector)
        if one.name in names and not selects(one, shown)
    }
