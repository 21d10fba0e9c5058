"""What judges a soak: it passes what is flat, and sees what rises, stays behind or stops."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.real.episode import EpisodePlan, Outcome
from tests.chaos.real.facts import Facts
from tests.chaos.real.faults import Struck
from tests.chaos.real.pauses import Pause, PauseLog, pauses_of
from tests.chaos.real.producer import Copy, SendLedger
from tests.chaos.real.resources import Held, Sample
from tests.chaos.real.traffic import Item, Kind
from tests.chaos.soak.flat import judged, lives_of, rising
from tests.chaos.soak.lines import slope
from tests.chaos.soak.run import options_of, plan_of, publish, verdict_of
from tests.chaos.soak.verdict import Seen, troubles
from tests.chaos.soak.vigil import Orphans, SessionsSeen, sessions_seen

EVERY, LOOKS = 5.0, 360
"""Half an hour."""
LIFE = 11
"""Looks that a worker which is replaced lives."""

Change = Callable[[int, Held], Held]
"""Spoils what was held at the n-th look."""


def held(program: str, pid: int, n: int, chance: random.Random) -> Held:
    """A process that warms up, and then holds about the same for good."""
    warm = min(1.0, n / 40)
    uss = 40 + 20 * warm + chance.uniform(-0.5, 0.5)
    return Held(0, program, pid, pid, uss + 20, uss, 20 + chance.randrange(2), 6,
                {"postgres": 1, "kafka": 2})  # fmt: skip


def samples(spoil: Change | None = None) -> list[Sample]:
    """One resident with a worker that stays and one that is replaced again and again."""
    chance, found = random.Random(5), []
    for n in range(LOOKS):
        some = [
            held("main", 1, n, chance), held("maintenance", 2, n, chance),
            held("worker", 3, n, chance),
            held("worker", 100 + n // LIFE, min(n % LIFE * 4, 40), chance),
        ]  # fmt: skip
        if 150 < n < 155:  # an outage: connections go
            some = [h._replace(connections={"postgres": 0, "kafka": 0}) for h in some]
        some.append(Held(7, "main", 1000 + n, n, 500, 500 + n, 9 + n, 9, {}))  # one of the visitors
        found.append(Sample(n * EVERY, held=[spoil(n, h) for h in some] if spoil else some))
    return found


def seen(looks: list[Sample]) -> Seen:
    return Seen(
        samples=looks, residents=1, workers=2, orphans=Orphans(), killed=3,
        sessions=[SessionsSeen(1.0, 5, 0.3, "oncepool worker, backend 7")],
        pauses=[Pause(1, n, 0.030, 0.004, 9000) for n in range(20)],
    )  # fmt: skip


def test_what_is_flat_passes() -> None:
    looks = samples()
    assert troubles(seen(looks)) == {}
    who = {one.who for one in judged(looks, 1, 2)}
    assert {"main 0", "maintenance 0", "worker 0.1"} < who
    assert any("replaced workers of 0" in name for name in who)
    assert not any("7" in name for name in who)


def rate(mib_an_hour: float, program: str) -> Change:
    def spoil(n: int, one: Held) -> Held:
        more = n * EVERY / 3600 * mib_an_hour
        return one._replace(uss=one.uss + more) if fits(one, program) else one

    return spoil


def fits(one: Held, program: str) -> bool:
    return one.instance == 0 and one.program == program


def step_for_good(n: int, one: Held) -> Held:
    return one._replace(uss=one.uss + 60) if fits(one, "maintenance") and n > 300 else one


def peak(n: int, one: Held) -> Held:
    return one._replace(uss=one.uss + 60) if fits(one, "main") and n == 300 else one


def more_descriptors(n: int, one: Held) -> Held:
    """One every five minutes."""
    return one._replace(descriptors=20 + n // 60) if fits(one, "main") else one


def more_threads(n: int, one: Held) -> Held:
    return one._replace(threads=6 + n // 60) if fits(one, "worker") and one.pid == 3 else one


def more_connections(n: int, one: Held) -> Held:
    if not fits(one, "maintenance"):
        return one
    return one._replace(connections={**one.connections, "postgres": 1 + n // 60})


def each_life_takes_more(n: int, one: Held) -> Held:
    more = 0.5 * (one.pid - 100)
    return one._replace(uss=one.uss + more) if fits(one, "worker") and one.pid >= 100 else one


def each_life_leaves_a_descriptor(n: int, one: Held) -> Held:
    return one._replace(descriptors=20 + (one.pid - 100) // 4) if one.pid >= 100 else one


@pytest.mark.parametrize(
    "spoil, who",
    [
        (rate(20, "main"), "uss of main 0"),
        (rate(20, "maintenance"), "uss of maintenance 0"),
        (rate(20, "worker"), "uss of worker 0.1"),
        (step_for_good, "uss of maintenance 0"),
        (peak, "uss of main 0"),
        (more_descriptors, "descriptors of main 0"),
        (more_threads, "threads of worker 0.1"),
        (more_connections, "postgres connections of maintenance 0"),
        (each_life_takes_more, "replaced workers"),
        (each_life_leaves_a_descriptor, "replaced workers"),
    ],
)
def test_what_rises_is_seen(spoil: Change, who: str) -> None:
    lines = rising(judged(samples(spoil), 1, 2))
    assert any(who in line for line in lines), lines
    assert troubles(seen(samples(spoil))) != {}


def test_processes_that_become_more_are_seen() -> None:
    looks = samples()
    for n, sample in enumerate(looks):
        sample.held += [sample.held[2]._replace(pid=50 + k, born=n) for k in range(n // 60)]
    assert any("processes" in line for line in rising(judged(looks, 1, 2)))
    for n, sample in enumerate(looks):
        sample.zombies = n // 60
    assert any("zombies" in line for line in rising(judged(looks, 1, 2)))


def test_a_resident_that_did_not_live_through_is_no_flat_one() -> None:
    def replaced(n: int, one: Held) -> Held:
        return one._replace(pid=99) if fits(one, "main") and n > 250 else one

    assert "main 0 did not live" in str(troubles(seen(samples(replaced))))


def test_of_a_short_run_no_growth_is_said() -> None:
    assert troubles(seen(samples(rate(9999, "main"))[:60])) == {}


def test_lives_are_told_apart_by_birth_where_a_pid_comes_again() -> None:
    looks = samples()[:4]
    looks[2].held = [h._replace(born=77) for h in looks[2].held]
    assert (0, "main", 1, 77) in lives_of(looks)
    assert len(lives_of(looks)[0, "main", 1, 1]) == 3


def test_a_line_is_not_bent_by_outliers() -> None:
    points = [(float(n), 3.0 * n) for n in range(100)]
    points[10:30] = [(x, 9000.0) for x, _ in points[10:30]]
    assert 2.5 < slope(points) < 3.5
    assert slope([]) == slope([(1.0, 5.0)]) == slope([(1.0, 5.0), (1.0, 9.0)]) == 0.0


# Orphans, transactions, collections


def test_a_process_is_an_orphan_once_it_has_outlived_its_parent_for_too_long() -> None:
    orphans = Orphans()
    for now in range(5):
        orphans.look(float(now), {(7, 1): "worker"})
    orphans.look(5.0, {(7, 2): "another with its pid"})
    assert orphans.beyond(5.0) == []
    orphans.look(11.0, {(7, 2): "another with its pid"})
    assert orphans.beyond(5.0) == ["process 7 lived 6.0 s without its parent: another with its pid"]
    looked = seen(samples())
    looked.orphans = orphans
    assert "no process outlives its main process" in troubles(looked)


def test_a_transaction_that_does_nothing_for_too_long_is_seen() -> None:
    rows = [
        ("oncepool a", 1, "idle", 900.0), ("oncepool b", 2, "idle in transaction", 3.0),
        ("oncepool c", 3, "idle in transaction (aborted)", 40.0), ("oncepool d", 4, "active", 99.0),
    ]  # fmt: skip
    looked = seen(samples())
    looked.sessions = [sessions_seen(5.0, rows[:2])]
    assert looked.sessions[0] == SessionsSeen(5.0, 2, 3.0, "oncepool b, backend 2")
    assert troubles(looked) == {}
    looked.sessions = [sessions_seen(5.0, rows)]
    assert troubles(looked) == {"no transaction is left open": ["oncepool c, backend 3: 40.0 s"]}
    looked.sessions = []
    assert "no transaction is left open" in troubles(looked)


def test_a_collection_that_takes_too_long_is_seen_and_a_loaded_machine_is_not() -> None:
    looked = seen(samples())
    looked.pauses = [*looked.pauses, Pause(1, 9.0, 0.050, 0.019, 9000)]
    assert troubles(looked) == {}
    looked.pauses = [*looked.pauses, Pause(1, 9.0, 0.050, 0.021, 9000)]
    assert "21.0 ms of work" in str(troubles(looked))
    looked.pauses = looked.pauses[:3]
    assert "only 3 collections" in str(troubles(looked))


def test_full_collections_are_noted_and_others_are_not(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    some: list[list[int]] = [
        [] for _ in range(1001)
    ]  # whatever was frozen before counts for nothing
    try:
        log = PauseLog(str(tmp_path / "pauses"))
        gc.collect(0)
        log.collect_now_and_then()
        log.collect_now_and_then()
    finally:
        gc.callbacks[:] = before
    [pause] = pauses_of(tmp_path / "pauses")
    assert pause.cpu > 0
    assert pause.objects > len(some)


# Verdict and report


def outcome_of(folder: Path, looks: list[Sample]) -> Outcome:
    """One request without its row."""
    ledger = SendLedger()
    ledger.items["a"] = Item("a", Kind.REQUEST, "move", b"k", b"{}", [], 1)
    ledger.copies.append(Copy("a", Kind.REQUEST, 0, 0, 1, 0.0))
    ledger.answered.append((1.0, 2.0))
    facts = Facts(
        ledger=ledger, ordering="key", rows={}, letters=[], effects=[], charges=Counter(),
        entries=[], commits=[], statuses={}, names={}, how={},
        struck=[Struck("redis_slow", 100.0, 104.0, "0.3 s each way")],
    )  # fmt: skip
    plan: EpisodePlan = plan_of(options_of([]), folder)
    return Outcome(plan, facts, 0.0, LOOKS * EVERY, LOOKS * EVERY + 9, looks)


def test_the_report_shows_what_was_judged_and_the_verdict_counts_what_is_lost(
    tmp_path: Path,
) -> None:
    looked = seen(samples(more_descriptors))
    outcome = outcome_of(tmp_path, list(looked.samples))
    found, verdict = verdict_of(outcome, looked)
    assert {"nothing lost", "what processes hold is flat"} <= set(found)
    assert verdict.endswith("problems")
    publish(options_of(["--report", str(tmp_path), "--seed", "7"]), outcome, looked, verdict)
    page = (tmp_path / "soak.html").read_text()
    assert page.count("<svg") > 15
    assert "rises</b>" in page
    told = json.loads((tmp_path / "soak.json").read_text())
    assert told["command"] == "scripts/soak --seed 7"
    assert told["verdict"] == verdict
    assert {one["flat"] for one in told["judged"]} == {True, False}
