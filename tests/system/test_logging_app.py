"""The lines of an app that configures logging for itself."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.service import Bench


def test_its_lines_look_like_all_others(bench: Bench, tmp_path: Path) -> None:
    """Collectors read JSON, and look for what belongs to a request by its id."""
    file, calls = tmp_path / "shop.log", tmp_path / "calls.log"
    instance = bench.start(
        ONCEPOOL_APP="tests.support.logging_app:app",
        ONCEPOOL_LOG_FORMAT="json",
        SHOP_LOG=str(file),
        SHOP_CALLS=str(calls),
    )
    request = bench.client.submit("order", {"order": 7})
    assert bench.client.wait(request).state == "failed"
    instance.says("no such article")
    assert instance.stop() == 0
    lines = [json.loads(line) for line in instance.log.splitlines()]
    [said] = [line for line in lines if line["message"] == "it is charged"]
    assert (said["request_id"], said["type"], said["order"]) == (request, "order", 7)
    [failed] = [line for line in lines if line["message"] == "handler failed"]
    assert failed["request_id"] == request
    assert 'raise ValueError("no such article")' in failed["exception"]
    assert {line["process"].split("-")[0] for line in (said, failed)} == {"worker"}
    [printed] = [line for line in lines if line["message"] == "to standard error"]
    assert (printed["request_id"], printed["logger"]) == (request, "printed")
    of = "the app's configuration of the root logger "
    told = {line["message"].partition(of)[2].split(":")[0] for line in lines} - {""}
    assert told == {"was replaced", "stands beside that of log_format and log_level"}
    # What a start hook has configured is there besides, and what is no matter of the root logger's.
    assert "it is charged" in file.read_text()
    assert calls.read_text() == "HTTP Request: POST\n"
