"""What queries of Prometheus ask for: names, labels and values, as far as ours use the language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(r"\b(oncepool_\w+)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
TEMPLATE = re.compile(r"\$labels\.(\w+)|\{\{\s*(\w+)\s*\}\}")

OF_THE_TARGET = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""


class Matcher(NamedTuple):
    """One condition of a selector."""

    label: str
    operator: str
    value: str

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is one that it means."""
        found = labels.get(self.label, "")
        if self.operator in ("=", "!="):
            return (found == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, found)) == (self.operator == "=~")


class Selector(NamedTuple):
    """A name with its conditions."""

    name: str
    matchers: tuple[Matcher, ...]

    def __str__(self) -> str:
        own = (one for one in self.matchers if one.label not in OF_THE_TARGET)
        asked = ",".join(f"{one.label}{one.operator}{one.value}" for one in own)
        return f"{self.name}{{{asked}}}"


class Series(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: float


def selectors(query: str) -> Iterator[Selector]:
    """What a query selects."""
    for match in NAME.finditer(query):
        yield Selector(
            match[1], tuple(Matcher(*found) for found in MATCHER.findall(match[2] or ""))
        )


def grouped_by(query: str) -> set[str]:
    """Labels that it groups or joins by."""
    found = GROUPING.findall(STRINGS.sub('""', query))
    return {label.strip() for labels in found for label in labels.split(",") if label.strip()}


def shown_labels(text: str) -> set[str]:
    """Labels that a legend or an annotation shows."""
    return {one or other for one, other in TEMPLATE.findall(text)}


def series_of(scrape: str) -> list[Series]:
    """The series of a scrape. Raises ValueError for what Prometheus could not read."""
    return [
        Series(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(scrape)
        for sample in family.samples
    ]


def kinds_of(scrape: str) -> dict[str, str]:
    """What is said of each name, also of those that have no series yet."""
    lines = (line.split() for line in scrape.splitlines() if line.startswith("# TYPE "))
    return {name: kind for _, _, name, kind in lines}


def selects(selector: Selector, series: Iterable[Series]) -> bool:
    """Whether there is something of what it asks for; what Prometheus adds is left out."""
    wanted = [m for m in selector.matchers if m.label not in OF_THE_TARGET]
    return any(
        one.name == selector.name and all(matcher.fits(one.labels) for matcher in wanted)
        for one in series
    )


def each_value(selector: Selector) -> list[Selector]:
    """A selector for each of the values that stand side by side in its conditions."""
    found = [selector]
    for place, matcher in enumerate(selector.matchers):
        if matcher.operator == "=~" and "|" in matcher.value:
            found = [
                one._replace(
                    matchers=(
                        *one.matchers[:place],
                        matcher._replace(value=value),
                        *one.matchers[place + 1 :],
                    )
                )
                for one in found
                for value in matcher.value.split("|")
            ]
    return found


class Query(NamedTuple):
    """A query with where it stands, and the texts that show its labels."""

    place: str
    expression: str
    texts: tuple[str, ...]


def queries_of_rules(rules: Mapping[str, Any]) -> list[Query]:
    """Of a file of rules."""
    return [
        Query(rule["alert"], rule["expr"], tuple(rule["annotations"].values()))
        for group in rules["groups"]
        for rule in group["rules"]
    ]


def queries_of_dashboard(dashboard: Mapping[str, Any]) -> list[Query]:
    """Of a dashboard's panels and variables."""
    panels = [
        Query(panel["title"], target["expr"], (target["legendFormat"],))
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    variables = [
        Query(f"${variable['name']}", variable["definition"], ())
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    return panels + variables


def plain(expression: str) -> str:
    """A panel's query as Prometheus takes it: Grafana's variables filled in."""
    for variable, value in {"$__rate_interval": "5m", "$job": ".*", "$instance": ".*"}.items():
        expression = expression.replace(variable, value)
    return expression
