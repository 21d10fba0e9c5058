"""Rules and dashboard ask only for what is shown. A metric that is renamed breaks these tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from feedback.metrics.exposition import exposition
from feedback.metrics.names import METRICS
from tests.support.metrics import check_with_promtool, of_all_programs
from tests.support.promql import (
    OF_THE_TARGET,
    Query,
    each_value,
    grouped_by,
    plain,
    queries_of_dashboard,
    selectors,
    selects,
    series_of,
    shown_labels,
)
from tests.support.queries_asked import (
    DASHBOARD,
    QUERIES,
    RULES,
    RULES_FILE,
    asked_in_vain,
)

LABELS = {
    name: {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
    for metric in METRICS.values()
    for name in metric.samples
}


def wrong_in(query: Query) -> list[str]:
    """What the list does not have."""
    wrong: list[str] = []
    labels: set[str] = {"__name__"}
    for selector in selectors(plain(query.expression)):
        known = LABELS.get(selector.name)
        if known is None:
            wrong.append(f"no metric {selector.name}")
            continue
        labels |= known
        asked = {matcher.label for matcher in selector.matchers}
        wrong += [f"no label {one} of {selector.name}" for one in asked - known - OF_THE_TARGET]
    used = grouped_by(query.expression).union(*map(shown_labels, query.texts))
    return wrong + [f"no label {one}" for one in sorted(used - labels - OF_THE_TARGET)]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_each_name_and_label_is_of_the_list(query: Query) -> None:
    assert wrong_in(query) == []


@pytest.mark.parametrize(
    "expression,texts,wrong",
    [
        ("oncepool_requsts_total", (), ["no metric oncepool_requsts_total"]),
        ("rate(oncepool_run_seconds[5m])", (), ["no metric oncepool_run_seconds"]),
        ('oncepool_ready{type="a"}', (), ["no label type of oncepool_ready"]),
        ("sum by (kind) (oncepool_workers)", (), ["no label kind"]),
        ("sum without (cause) (oncepool_workers)", (), ["no label cause"]),
        ("oncepool_workers", ("{{ $labels.cause }}",), ["no label cause"]),
        ("oncepool_workers", ("{{cause}} {{state}}",), ["no label cause"]),
        ('oncepool_workers{state="idle",job=~"$job"} > 1', ("{{instance}}",), []),
    ],
)
def test_what_the_list_does_not_have_is_found(
    expression: str, texts: Sequence[str], wrong: list[str]
) -> None:
    assert wrong_in(Query("here", expression, tuple(texts))) == wrong


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_each_selects_something_of_what_busy_programs_show(query: Query) -> None:
    """Values of labels, too: `reason="databas"` would never alarm anybody."""
    shown = series_of(exposition(of_all_programs()).decode())
    for selector in selectors(plain(query.expression)):
        for one in each_value(selector):
            assert selects(one, shown), one


def test_what_a_scrape_has_nothing_of_is_named() -> None:
    whole = exposition(of_all_programs()).decode()
    assert asked_in_vain(whole) == set()
    assert asked_in_vain(whole.replace('what="dead_letter"', 'what="letter"')) == {
        "oncepool_journal_rows{what=dead_letter}"
    }
    assert asked_in_vain("") == set(), "of another program's metrics nothing is said"


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names))
    for rule in rules:
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
        assert len(rule["annotations"]["action"].split()) >= 10, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]


def test_the_dashboard_shows_all_that_there_is() -> None:
    shown = {one.name for query in QUERIES for one in selectors(plain(query.expression))}
    shown |= {"oncepool_info"}
    missing = [m.name for m in METRICS.values() if not shown & set(m.samples)]
    assert missing == []


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not here: install Debian's package prometheus, or put it on PATH")
    return found


def test_promtool_takes_the_rules_and_the_dashboards_queries(promtool: str, tmp_path: Path) -> None:
    queries = tmp_path / "dashboard.yml"
    rules = [
        {"record": f"panel:{number}", "expr": plain(query.expression)}
        for number, query in enumerate(queries_of_dashboard(DASHBOARD))
        if not query.place.startswith("$")
    ]
    queries.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES_FILE), str(queries)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout


def test_promtool_finds_nothing_wrong_with_what_is_shown(promtool: str) -> None:
    check_with_promtool(exposition(of_all_programs()).decode())


FIRING = {
    "OncepoolBrokersAway",
    "OncepoolCommitErrors", "OncepoolConflicts", "OncepoolDead", "OncepoolDeadLetters",
    "OncepoolGatewayErrors", "OncepoolInDoubt", "OncepoolLag", "OncepoolLost",
    "OncepoolOutboxDead", "OncepoolOutboxUnanswered", "OncepoolOutboxWaits", "OncepoolOverdue",
    "OncepoolPartitionsLost", "OncepoolPartitionsWithoutStart",
    "OncepoolRebalances", "OncepoolRedisAway", "OncepoolRelayServiceAway", "OncepoolRequestsFail",
    "OncepoolRequestsTimeOut", "OncepoolStatusesDropped", "OncepoolUnknownType",
    "OncepoolWorkersDie",
}  # fmt: skip
"""What fires where things are as busy programs show them, and each counter rises by 1 a minute."""
QUIET = {
    "OncepoolDatabaseAway", "OncepoolInstanceNotReady", "OncepoolIntakeClosed",
    "OncepoolJournalNotLookedAt", "OncepoolMainProcessSilent", "OncepoolNotInGroup",
    "OncepoolOutboxNotLookedAt", "OncepoolRequestsWaitLong", "OncepoolWorkersMissing",
}  # fmt: skip
"""What does not."""


def test_of_each_alert_it_is_said_whether_it_fires() -> None:
    assert {r["alert"] for group in RULES["groups"] for r in group["rules"]} == FIRING | QUIET


def test_promtool_fires_the_alerts_of_what_goes_wrong(promtool: str, tmp_path: Path) -> None:
    """Its own test of rules, with what busy programs show."""
    shown = exposition(of_all_programs()).decode()
    lines = [line.rpartition(" ") for line in shown.splitlines() if not line.startswith("#")]
    series = [
        {"series": name, "values": f"{float(value):f}+{int('_total' in name)}x60"}
        for name, _, value in lines
    ]
    _fires(promtool, tmp_path, series, FIRING)


UP = {"journal": "oncepool_ready", "outbox": 'oncepool_relay_up{service="outbox"}'}
NOT_LOOKED_AT = {"journal": "OncepoolJournalNotLookedAt", "outbox": "OncepoolOutboxNotLookedAt"}


@pytest.mark.parametrize("what", NOT_LOOKED_AT)
@pytest.mark.parametrize(
    "ages, fires",
    [
        ([], True),  # since their start
        (["0+0x60"], False),  # one has, and the other was started again and again
        (["0+60x60"], True),  # has stopped to, and the other was started lately
        (["0+60x60", "_x37 0+60x20"], False),
        (["0+60x60", "0+0x60"], False),
    ],
)
def test_who_looks_at_nothing_is_told_of(
    promtool: str, tmp_path: Path, what: str, ages: list[str], fires: bool
) -> None:
    name, _, labels = UP[what].rstrip("}").partition("{")
    up = [f'{name}{{{labels}{"," * bool(labels)}job="j",instance="{n}"}}' for n in range(2)]
    age = [f'oncepool_{what}_read_age_seconds{{job="j",instance="{n}"}}' for n in range(2)]
    series = [{"series": one, "values": "1+0x60"} for one in up]
    series += [{"series": one, "values": v} for one, v in zip(age, ages, strict=False)]
    _fires(promtool, tmp_path, series, {NOT_LOOKED_AT[what]} if fires else set())


def test_few_tries_of_an_unknown_type_that_are_spread_over_instances_are_told_of(
    promtool: str, tmp_path: Path
) -> None:
    """Each instance has met one, at another time: the last one 15 minutes before the look."""
    labels = 'type="other",state="waiting",code="unknown_type"'
    series = [
        {
            "series": f'oncepool_requests_total{{{labels},instance="{n}"}}',
            "values": f"0x{met} 1x{59 - met}",
        }
        for n, met in enumerate((14, 15, 17, 24))
    ]
    _fires(promtool, tmp_path, series, {"OncepoolUnknownType"})


def _fires(promtool: str, tmp_path: Path, series: list[dict[str, str]], names: set[str]) -> None:
    """Asserts that these alerts, and no others, fire after 40 minutes."""
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
    query = 'count by (alertname) (count by (alertname, alertstate) (ALERTS{alertstate="firing"}))'
    test = {
        "rule_files": [str(RULES_FILE)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{"expr": query, "eval_time": "40m", "exp_samples": expected}],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
