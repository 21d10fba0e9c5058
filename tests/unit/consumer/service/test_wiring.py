from __future__ import annotations

import marshal
from dataclasses import asdict
from typing import Any

import pytest

from consumer.config.settings import Settings
from consumer.service import wiring
from feedback.message_size import message_bytes

GIVEN: dict[str, Any] = {
    "app": "shop:app", "workers": 3, "ordering": "none", "max_in_hand": 77, "lease": 9.0,
    "max_payload": "7KiB", "max_in_hand_bytes": "3MiB", "sweep_interval": 3.0,
    "database_url": "postgresql://d", "redis_url": "redis://r", "redis_prefix": "p",
    "health_host": "h", "health_port": 9, "results_duplicates": True, "kafka_topics": ["t"],
    "worker_start_timeout": 7.0, "kafka_results_topic": "results", "kafka_bootstrap_servers": "k:1",
}  # fmt: skip


def test_settings_reach_the_parts_that_know_them_by_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wiring, "Supervisor", lambda *parts: [asdict(p) for p in parts[:3]])
    made: Any = wiring.make_pool(Settings(**GIVEN), "i-1")
    pool, worker, maintenance = made
    executor = worker["executor"]

    for part, names in (
        (pool, "workers ordering max_in_hand lease"),
        (worker, "app database_url redis_url redis_prefix"),
        (executor, "ordering lease results_duplicates"),
        (maintenance, "database_url redis_url redis_prefix health_host health_port lease"),
    ):
        assert {n: part[n] for n in names.split()} == {n: GIVEN[n] for n in names.split()}
    assert executor["max_payload"] == 7 * 1024
    assert (executor["metrics"], maintenance["metrics"]) == (True, True)
    kafka = maintenance["results_kafka"]
    assert (kafka["bootstrap.servers"], kafka["message.max.bytes"]) == (
        "k:1", message_bytes(7 * 1024),
    )  # fmt: skip
    assert pool["start_timeout"] == 7.0
    marshal.dumps([pool, worker, maintenance])  # as they cross a channel


def test_without_a_health_port_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "Supervisor", lambda *parts: [asdict(p) for p in parts[:3]])
    made: Any = wiring.make_pool(Settings(**{**GIVEN, "health_port": None}), "i-1")
    _, worker, maintenance = made
    assert (worker["executor"]["metrics"], maintenance["metrics"]) == (False, False)
