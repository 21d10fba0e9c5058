"""Moves of operators on a journal that only refuses: what they keep from each other."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from consumer.admin.cancelling import Cancelled
from consumer.config.settings import Settings
from consumer.gateway import operators
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.operators import JournalOperator
from feedback.contract.states import State
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, TransitionOutcome
from tests.support.cancelling import redis_goes

BY = By("ann")


class IdleConnection(SimpleNamespace):
    """One that nothing is asked on."""

    closed = False
    info = SimpleNamespace(transaction_status=TransactionStatus.IDLE)

    def execute(self, _: str) -> Any:
        return SimpleNamespace(fetchone=lambda: ("off",))

    def close(self) -> None: ...


IDLE: Any = IdleConnection()


def test_the_wait_for_a_running_request_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, waits = threading.Event(), threading.Event()
    asked: list[str] = []

    def refuse(_: Any, ids: Any, *__: Any, **___: Any) -> TransitionOutcome:
        asked.extend(ids)
        return TransitionOutcome([], [Refusal(one, State.RUNNING, "runs") for one in ids])

    def end(_: Any, refused: Any, withdraw: Any, *__: Any, **___: Any) -> Cancelled:
        assert withdraw(["r"]) == []
        waits.set()
        go.wait(25)
        return Cancelled(late=list(refused))

    monkeypatch.setattr(operators.actions, "cancel", refuse)
    monkeypatch.setattr(operators.actions, "retry", refuse)
    monkeypatch.setattr(operators, "end_running", end)

    async def scenario() -> None:
        threads = DatabaseThreads("database_url", lambda _: IDLE, 1)
        operator = JournalOperator(Settings(), threads)
        cancel = asyncio.create_task(operator.cancel("r", BY, 25))
        try:
            async with asyncio.timeout(20):
                while not waits.is_set():
                    await asyncio.sleep(0.01)
                answer = await operator.retry("other", BY)
                assert answer.refusal is not None
                assert not cancel.done()
                go.set()
                late = await cancel
        finally:
            go.set()
            threads.close()
        assert late.late
        assert asked == ["r", "r", "other"]

    asyncio.run(scenario())


def test_whoever_may_have_been_asked_to_end_is_not_told_as_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redis_goes(monkeypatch, "r")
    refusal = Refusal("r", State.RUNNING, "runs")
    monkeypatch.setattr(
        operators.actions, "cancel", lambda *_, **__: TransitionOutcome([], [refusal])
    )
    threads = DatabaseThreads("database_url", lambda _: IDLE, 1)
    try:
        answer = asyncio.run(JournalOperator(Settings(), threads).cancel("r", BY, 5))
    finally:
        threads.close()
    assert answer.late
    assert answer.refusal is not None
    assert "look at it again" in answer.refusal.reason
