"""Small results of benchmarks, as they stand in benchmarks/results/, for page and goals."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.goals import BEFORE
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
            BEFORE: [measured(45, 100), measured(30, 100)],
        }
    },
}


def times(p50: float, p99: float) -> list[dict[str, float]]:
    return [{"p50": p50, "p99": p99, "longest": 2 * p99, "count": 9}]


def called(rate: float, cpu: float) -> dict[str, Any]:
    return {"rate": rate, "times": times(5, 9)[0], "cpu": {"server": cpu, "broker": 90}}


RATIOS = {"finished": 1.0, "in_time": 0.9}
OTHERS: dict[str, Any] = {
    "latency": {
        "machine": MACHINE,
        "found": {
            "Oncepool, client": times(6, 20), "afternoon": times(5, 12), "a commit": times(2, 3),
            "Kafka alone": times(2, 11), "Oncepool, client, half load": times(9, 50),
        },
    },
    "beside": {
        "machine": MACHINE,
        "found": {"alone": times(5, 10), "one worker kept": times(6, 25)},
    },
    "journal_size": {
        "machine": MACHINE,
        "found": {
            "empty": [measured(100, 1)],
            "10,000,000 rows": [measured(95, 1)],
            "10,000,000 rows, random ids": [measured(60, 1)],
            "10,000,000 rows, pruned": [measured(80, 1)],
        },
    },
    "backlog": {
        "machine": MACHINE,
        "messages": 1000,
        "found": {
            "Oncepool": [
                {"rates": [9, 9, 9], "memory": {"main": [50, 51, 52.5], "x": [0, 1, 1]},
                 "cpu": [{"main": 4.0}, {"main": 5.0}, {"main": 6.0}]}
            ]
        },
    },
    "recovery": {"machine": MACHINE, "found": {"Oncepool": {"a worker": [0.2, 0.3]}}},
    "scale": {
        "machine": MACHINE, "modelled_cores": {"Valkey": 1}, "modelled_workers": 8,
        "modelled": {"no-op": {"1": 10.0, "100": 900.0}},
        "found": {"no-op": {"1 x 1": [measured(10, 1)], "1 x 2": [measured(15, 1)]}},
    },
    "gateway": {
        "machine": MACHINE, "connections": 16,
        "found": {"POST": {
            "bare application": [called(800, 500)], "gateway": [called(400, 1500)],
        }},
    },
    "client": {
        "machine": MACHINE, "requests": 100,
        "found": {
            "bare steps": [{"rate": 80, "times": times(5, 9)[0], "cpu": {"producer": 40}}],
            "Client": [{"rate": 20, "times": times(5, 9)[0], "cpu": {"producer": 70}}],
        },
        "steps": [{"a commit": times(2, 3)[0]}],
    },
    "rebalance-planned": {
        "machine": MACHINE, "benchmark": "rebalance-planned",
        "protocols": {
            "KIP-848": {
                "ratio": {figure: asdict(spread([share])) for figure, share in RATIOS.items()},
                "outcome": {"books": {"requests": 9, "lost": 1, "twice": 0, "unanswered": 0}},
            }
        },
    },
    "waiting": {
        "machine": MACHINE,
        "requests_per_second": {
            "bench.noop": {"empty queue": [10], "beside a full queue": [9.6], "due rows": [4]}
        },
    },
}  # fmt: skip


def steps(main: float, worker: float) -> dict[str, Any]:
    return {
        "rate": 9, "cpu": {"main": 9.0, "worker": 20.0, "PostgreSQL": 8.0},
        "steps": {"main": {"order": main, "frames": 1.0}, "worker": {"rows": worker}},
        "functions": {"main": {f"a.py:f{n}": 9.0 - n / 8 for n in range(20)}},
    }  # fmt: skip


BUDGET: dict[str, Any] = {
    "machine": MACHINE,
    "found": {"Oncepool": [steps(3, 7), steps(5, 9)], BEFORE: [steps(6, 10)]},
}
