from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import drawings, goals, page
from benchmarks.causes import said
from benchmarks.goal_measures import cpu_ratio
from benchmarks.goals import Goal, Judged, verdicts
from benchmarks.markdown import table
from benchmarks.page import SECTIONS, text_of
from benchmarks.page_contests import CONTESTS
from benchmarks.report import RESULTS
from benchmarks.spread import spread
from tests.support.benchmark_results import BUDGET, MACHINE, OTHERS, PEERS, measured, steps


def test_a_goal_is_met_or_missed_by_its_median_or_was_not_measured() -> None:
    found = {verdict.goal.what: verdict for verdict in verdicts({"peers-2": PEERS})}
    assert found["no-op / afternoon"].words == "missed: 15 % away"
    assert found[f"no-op / {goals.BEFORE}"].words == "met"
    assert found[f"no-op, CPU a request of all processes / {goals.BEFORE}"].met
    assert found["one INSERT / afternoon"].words == "not measured"
    assert found["idle p99 / Kafka alone"].found is None


def test_cpu_that_could_not_be_told_meets_no_goal() -> None:
    goal = cpu_ratio("peers-2", "no-op", "Oncepool", goals.BEFORE)
    told, untold = measured(90, 50), {"rate": 90, "cpu": {}}

    def results(ours: list[dict[str, Any]]) -> dict[str, Any]:
        found = {"Oncepool": ours, goals.BEFORE: [measured(45, 100)] * 2}
        return {"peers-2": {"found": {"no-op": found}}}

    assert goal(results([told, untold])).median == 0.5
    with pytest.raises(ValueError, match="nothing was measured"):
        goal(results([untold, untold]))


@pytest.mark.parametrize(
    "value, at_most, met",
    [(1, False, True), (1, True, True), (0.9, False, False), (1.1, True, False)],
)
def test_a_goal_has_a_direction(value: float, at_most: bool, met: bool) -> None:
    goal = Goal("x", 1.0, lambda _: spread([value]), said("because"), at_most=at_most)
    judged = Judged(goal, spread([value]))
    assert (judged.met, judged.missed) == (met, not met)
    assert judged.wanted == ("<= 1" if at_most else ">= 1")


def test_the_page_tells_what_was_measured_and_names_what_was_not() -> None:
    text = text_of({"peers-2": PEERS})
    assert "| no-op / afternoon | >= 1 | 0.85 (0.80 - 0.90) | missed: 15 % away | 55.0 us" in text
    assert "- Beside other consumers, two workers, no-op: 0.85 (0.80 - 0.90) of afternoon." in text
    assert "abc1234" in text
    assert "Not measured yet: budget, peers-1, handoff-2" in text
    assert "## The clients\n\nNot measured.\n" in text


def test_every_kind_of_result_has_its_goals_and_its_section() -> None:
    found = {v.goal.what: v.words for v in verdicts(OTHERS)}
    assert found["idle p50 / afternoon's and a commit"] == "met"
    assert found["idle p99 / Kafka alone"] == "missed: 21 % away"
    assert found["p99 with half load / idle"] == "met"
    assert found["p99 of a 1 ms type beside one of 1 s, a worker kept / alone"] == "met"
    assert found["journal of 10 M rows, ordered ids / empty"] == "met"
    assert found["journal of 50 M rows, ordered ids / empty"] == "not measured"
    assert found["journal of 10 M rows, pruned meanwhile / left alone"] == "missed: 6 % away"
    assert found["backlog, memory in the last third / first"] == "met"
    hand_over = "planned hand-overs, KIP-848, answered within 1 s / undisturbed"
    assert found[hand_over] == "missed: 5 % away"
    assert found["due rows, no-op / fresh"] == "missed: 20 % away"
    text = text_of(OTHERS)
    for line in (
        "| Oncepool, client | 6 | 20 | 40 |",
        "| 10,000,000 rows, random ids | 60 | 0.60 (0.60 - 0.60) |",
        "| main, MiB | 50 | 51 | 52.5 |",
        "| gateway | 400 | 0.50 (0.50 - 0.50) | 5 | 9 | 1,500 | 90 |",
        "- The HTTP gateway, POST, gateway: 0.50 (0.50 - 0.50) of the bare application.",
        "- The clients, Client: 0.25 (0.25 - 0.25) of the bare steps.",
        "| Client | 20 | 0.25 (0.25 - 0.25) | 70 |",
        "| Client | 5 | 9 | 1.00 (1.00 - 1.00) |",
        "| a commit | 2 | 3 |  |",
        "| main, us of CPU for each | 4.00 | 5.00 | 6.00 |",
        "| a worker | 0.25 (0.20 - 0.30) |",
        "| no-op | 10.0 | 900 |",
        "| answered within 1 s | 0.90 (0.90 - 0.90) |",
        "| messages lost | 1 |",
        "| bench.noop | 0.96 (0.96 - 0.96) | 0.40 (0.40 - 0.40) |",
    ):
        assert line in text


def test_no_results_make_a_page_too() -> None:
    assert "Nowhere, of what was measured." in text_of({})


def test_a_cell_does_not_end_a_table() -> None:
    assert table(("a",), [("x|y",), (1234.5,)]) == "| a |\n| --- |\n| x\\|y |\n| 1,234 |"


@pytest.mark.parametrize(
    "date,told", [("2026-11-21T08:05:17Z", True), ("2030-01-02T03:04:05Z", False)]
)
def test_losses_of_a_run_before_gaps_were_read_again_are_told_as_such(
    date: str, told: bool
) -> None:
    document = {**OTHERS["rebalance-planned"], "machine": {**MACHINE, "date": date}}
    text = text_of({"rebalance-planned": document})
    assert ("older than `read_again`" in text) is told


def test_the_page_is_written_from_the_results() -> None:
    kept = Path(__file__).parents[3] / "docs" / "performance.md"
    assert kept.read_text() == text_of(page.results_in(RESULTS)), "run: scripts/bench --page"


def test_a_run_of_the_page_writes_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latency.json").write_bytes(orjson.dumps(OTHERS["latency"]))
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    page.main()
    assert "| Oncepool, client | 6 | 20 | 40 |" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "latency.svg").exists()


@pytest.mark.parametrize("name", drawings.DRAWN)
def test_each_result_is_drawn_by_groups(name: str) -> None:
    _, _, groups_of = drawings.DRAWN[name]
    groups = groups_of({**OTHERS, "budget": BUDGET}[name])
    assert groups
    assert all(groups.values())


def test_what_is_drawn_or_told_is_a_result_that_a_benchmark_writes() -> None:
    assert set(drawings.DRAWN) <= {*SECTIONS, "budget"}
    assert not set(SECTIONS) & set(CONTESTS)


def test_the_budget_has_a_table_a_process_before_and_after() -> None:
    text = text_of({"budget": BUDGET})
    for line in (
        f"| step | {goals.BEFORE} | Oncepool | more |",
        "| order | 6 | 4.00 | -2.00 |",
        "| rows | 10 | 8.00 | -2.00 |",
        "| all | 37.0 | 37.0 | +0.00 |",
    ):
        assert line in text
    assert "| a.py:f11 | 7.62 |" in text
    assert "a.py:f12" not in text
    alone = text_of({"budget": {**BUDGET, "found": {"Oncepool": [steps(3, 7)]}}})
    assert "| order | 3 |" in alone
