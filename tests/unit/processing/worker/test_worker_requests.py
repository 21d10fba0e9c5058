"""After how many requests a worker asks to be replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from feedback.contract.record import Record
from processing.ipc.frames import Report
from processing.settings import WorkerSettings
from processing.worker import __main__ as worker
from processing.worker.chunk_run import ChunkRun
from tests.support.executor import FakeGate


@pytest.mark.parametrize("given_back", [[], [1, 2], [2]])
def test_what_was_recalled_and_given_back_is_left_out_once(
    monkeypatch: pytest.MonkeyPatch, given_back: list[int]
) -> None:
    monkeypatch.setattr(worker, "configure", lambda **_: None)
    records: list[Record] = [
        ("topic", 0, offset, 0, None, b"{}", [], "type", None) for offset in range(3)
    ]
    chunk = ChunkRun(1, "token", records, None, FakeGate())
    reports: list[Report] = []

    def begin(chunk: ChunkRun) -> Report:
        assert chunk.start(0, None)
        assert chunk.recall() == [1, 2]
        chunk.returned += given_back
        return chunk.finish()

    settings = WorkerSettings("a:b", "", "", "p", {}, {}, max_requests=1)
    inbox: Any = SimpleNamespace(report=lambda _chunk, report: reports.append(report))
    sender: Any = SimpleNamespace(dropped=0)
    executor: Any = SimpleNamespace(begin=begin)
    channel: Any = None
    slot: Any = None
    worker._Worker(channel, slot, settings)._run(executor, inbox, chunk, sender)

    assert [report.leaving for report in reports] == ["1 requests done"]
