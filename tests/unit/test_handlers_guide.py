"""The code in docs/handlers.md runs, and its tests pass."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from processing.testing import FakeCursor, Kit, run, run_batch

GUIDE = Path(__file__).parents[2] / "docs" / "handlers.md"


def test_guide() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{GUIDE.name}[{number}]", "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 4
    for name in tests:
        names[name]()

    app = names["app"]
    assert run(app, "report.render", ["a", "b"]).result == 2
    assert run(app, "report.render", ["a"], stopping=True).code == "retry"
    tx = FakeCursor()
    assert [o.state for o in run_batch(app, "page.view", [{"path": "/"}], tx=tx)] == ["done"]
    trial = run(app, "trial.begin", {"customer": "a"}, tx=FakeCursor())
    assert [(f.id, f.type) for f in trial.follow_ups] == [(trial.result, "trial.end")]
    parcel = {"closed_until": "2030-01-01T00:00:00+00:00"}
    closed = run(app, "parcel.ship", parcel, tx=FakeCursor())
    assert (closed.code, closed.retry_at) == ("retry", datetime(2030, 1, 1, tzinfo=UTC))
    with Kit(app) as kit:
        envelope = kit.decode("erp.orders", b"7;a;b;5")
        assert getattr(envelope, "id", None) == "erp-7"
        assert kit.decode("erp.orders", None) == names["Skip"]("a tombstone")
