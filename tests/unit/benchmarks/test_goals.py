from typing import Any

import pytest

from benchmarks import goals
from benchmarks.goals import Goal, Judged, verdicts
from benchmarks.page import parts_of, table
from benchmarks.spread import spread


def measured(rate: float, cpu: float) -> dict[str, Any]:
    return {"rate": rate, "cpu": {"main": cpu / 2, "worker": cpu / 2}}


MACHINE: dict[str, Any] = {
    "date": "2030-01-02T03:04:05Z", "commit": "abc1234", "cores": 2, "memory_gib": 8.0,
    "load_before": 0.1, "python": "CPython", "services": {"Kafka": "4"}, "packages": {},
}  # fmt: skip
PEERS = {
    "machine": MACHINE,
    "unit": "requests",
    "found": {
        "no-op": {
            "Oncepool": [measured(90, 50), measured(80, 60)],
            "afternoon": [measured(100, 20), measured(100, 30)],
            goals.BEFORE: [measured(45, 100), measured(30, 100)],
        }
    },
}


def test_a_goal_is_met_or_missed_by_its_median_or_was_not_measured() -> None:
    found = {verdict.goal.what: verdict for verdict in verdicts({"peers-2": PEERS})}
    assert found["no-op / afternoon"].words == "missed: 15 % away"
    assert found[f"no-op / {goals.BEFORE}"].words == "met"
    assert found[f"no-op, CPU a request of all processes / {goals.BEFORE}"].met
    assert found["one INSERT / afternoon"].words == "not measured"
    assert found["idle p99 / Kafka alone"].found is None


@pytest.mark.parametrize(
    "value, at_most, met",
    [(1, False, True), (1, True, True), (0.9, False, False), (1.1, True, False)],
)
def test_a_goal_has_a_direction(value: float, at_most: bool, met: bool) -> None:
    goal = Goal("x", 1.0, lambda _: spread([value]), "because", at_most=at_most)
    assert Judged(goal, spread([value])).met is met


def test_the_page_tells_what_was_measured_and_names_what_was_not() -> None:
    page = "\n\n".join(parts_of({"peers-2": PEERS}))
    assert "| no-op / afternoon | >= 1 | 0.85 (0.80 - 0.90) | missed: 15 % away | each" in page
    assert "- Beside other consumers, two workers, no-op: 0.85 (0.80 - 0.90) of afternoon." in page
    assert "abc1234" in page
    assert "Not measured yet: peers-1, handoff-2" in page


def test_no_results_make_a_page_too() -> None:
    assert "Nowhere, of what was measured." in "\n\n".join(parts_of({}))


def test_a_cell_does_not_end_a_table() -> None:
    assert table(("a",), [("x|y",), (1234.5,)]) == "| a |\n| --- |\n| x\\|y |\n| 1,234 |"
