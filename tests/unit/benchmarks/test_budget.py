"""Where a process says that its CPU goes, and which step that is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import budget, budget_steps, sampling
from benchmarks.budget_steps import OTHER, steps_of_process
from benchmarks.sampling import MAIN, NOWHERE, OTHERS, Sampled, sampled

ROOT = Path(__file__).parents[3]
BURN = """
import json, time

def for_long():
    burn(0.6)

def for_short():
    burn(0.2)

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        json.dumps([0] * 2000)
"""
PROGRAM = """
import sys, threading
from pathlib import Path
from benchmarks.sampling import Sampler

root = Path(sys.argv[1])
sys.path.insert(0, str(root))
from consumer import work

sampler = Sampler("main", root / "samples", root)
sampler.arm()
beside = threading.Thread(target=work.burn, args=(0.4,), name="beside")
beside.start()
work.for_long()
work.for_short()
sampler._write()  # while the other thread is there, or has just been
beside.join()
sampler.disarm()
"""


def test_a_process_notes_what_its_main_thread_computes_and_what_others_take(
    tmp_path: Path,
) -> None:
    for folder in ("samples", "consumer"):
        (tmp_path / folder).mkdir()
    (tmp_path / "consumer" / "__init__.py").touch()
    (tmp_path / "consumer" / "work.py").write_text(BURN)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    [(kind, found)] = sampled(tmp_path / "samples", 0.0, float("inf")).items()
    assert kind == "main"
    # What json does is the function's that calls it: the library is none of the project's.
    assert set(found.places) <= {f"consumer/work.py:{name}" for name in ("burn", "for_long")} | {
        NOWHERE
    }
    assert found.places["consumer/work.py:burn"] > 20
    assert found.threads[MAIN] > 0
    assert OTHERS in found.threads


def noted(folder: Path, name: str, *lines: Any) -> None:
    (folder / name).write_bytes(b"\n".join(map(orjson.dumps, lines)) + b"\n")


def clocks(at: float, process: float, **threads: float) -> dict[str, Any]:
    return {"at": at, "process": process, "threads": threads}


def test_only_what_is_noted_in_the_time_counts_and_all_of_a_kind_are_one(tmp_path: Path) -> None:
    noted(
        tmp_path, "worker-1", (0.5, "a"), clocks(1.0, 1.0, MainThread=1.0), (1.5, "a"), (2.0, "b"),
        clocks(2.0, 3.0, MainThread=2.0, statuses=0.5), (3.5, "a"), clocks(4.0, 9, MainThread=9),
    )  # fmt: skip
    noted(
        tmp_path, "worker-2", clocks(1.0, 1.0, MainThread=1.0), (1.2, "b"),
        clocks(2.5, 2.0, MainThread=2.0),
    )  # fmt: skip
    noted(tmp_path, "main-3", clocks(1.0, 1.0, MainThread=1.0))
    found = sampled(tmp_path, 1.0, 3.0)
    assert found["worker"].places == Counter({"a": 1, "b": 2})
    assert found["worker"].threads == {MAIN: 2.0, "statuses": 0.5, OTHERS: 0.5}
    assert found["main"] == Sampled(Counter(), {})


def test_the_main_threads_share_goes_to_its_steps_and_the_rest_by_name() -> None:
    one = Sampled(Counter({"a": 3, "b": 1}), {MAIN: 6.0, "statuses": 1.0, OTHERS: 1.0})
    shares = one.shares({"a": "rows", "b": "frames"}.__getitem__)
    assert shares == {
        "rows": 6 / 8 * 3 / 4, "frames": 6 / 8 / 4, "thread: statuses": 1 / 8,
        f"thread: {OTHERS}": 1 / 8,
    }  # fmt: skip
    assert sum(shares.values()) == pytest.approx(1)
    assert Sampled().shares(str) == {}


def test_a_step_costs_its_share_of_what_its_process_costs() -> None:
    main = Sampled(Counter({"consumer/intake/marks.py:Marks.of": 1}), {MAIN: 1.0, OTHERS: 1.0})
    found = budget.by_step({"main": 10.0}, {"main": main, "worker": Sampled()})
    assert found == {
        "main": {budget_steps.COMMITS: 5.0, f"thread: {OTHERS}": 5.0}, "worker": {},
    }  # fmt: skip


def test_a_function_costs_its_share_too_where_it_is_one_of_the_projects() -> None:
    main = Sampled(Counter({"a.py:f": 3, NOWHERE: 1}), {MAIN: 4.0, "inbox": 4.0})
    assert budget.by_function({"main": 8.0}, {"main": main}) == {"main": {"a.py:f": 3.0}}


@pytest.mark.parametrize(
    "process, place, step",
    [
        ("main", "consumer/intake/kafka.py:Kafka.poll", budget_steps.MESSAGES),
        ("main", "consumer/intake/kafka.py:Kafka.commit", budget_steps.COMMITS),
        ("main", "consumer/kafka.py:Kafka.poll", budget_steps.MESSAGES),  # as of ec01882
        ("main", "feedback/contract/record.py:record_size", budget_steps.SIZES),
        ("worker", "feedback/contract/envelope.py:_read", budget_steps.READ),
        ("worker", "feedback/envelope.py:read", budget_steps.READ),
        ("worker", "processing/worker/plain.py:plain_statuses", budget_steps.STATUSES),
        ("worker", "feedback/journal/writer.py:JournalWriter.find", budget_steps.STATEMENTS),
        ("worker", NOWHERE, OTHER),
    ],
)
def test_functions_belong_to_steps(process: str, place: str, step: str) -> None:
    assert steps_of_process(process)(place) == step


def test_what_a_request_passes_is_known_by_its_step() -> None:
    """Files of today, so that one that is renamed does not vanish among `other`."""
    for process, folders in {
        "main": ("consumer/intake", "processing/pool", "processing/ipc"),
        "worker": ("processing/worker", "feedback/journal", "feedback/status"),
    }.items():
        step = steps_of_process(process)
        names = {p.stem for folder in folders for p in (ROOT / folder).glob("*.py")}
        known = {name for name in names if step(f"x/{name}.py:f") != OTHER}
        assert len(known) > len(names) / 3
    for name in ("kafka_records", "assignment", "commit", "lanes", "chunk", "frames", "loop"):
        assert list(ROOT.glob(f"*/*/{name}.py")), name
        assert steps_of_process("main")(f"x/{name}.py:f") != OTHER
    for name in ("reading", "task", "transaction", "session", "done_rows", "sender", "chunk_run"):
        assert list(ROOT.glob(f"*/*/{name}.py")), name
        assert steps_of_process("worker")(f"x/{name}.py:f") != OTHER


def test_samples_are_named_by_files_of_the_tree_alone(tmp_path: Path) -> None:
    sampler = sampling.Sampler("main", tmp_path, ROOT)
    ours = compile("0", f"{ROOT}/consumer/x.py", "eval")
    theirs = compile("0", f"{ROOT}/benchmarks/x.py", "eval")
    assert sampler._named(ours) == "consumer/x.py:<module>"
    assert sampler._named(theirs) is None
