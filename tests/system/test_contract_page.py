"""docs/contract.md is enough to write a producer from, and says what the code does."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from feedback.contract.fingerprint import fingerprint
from feedback.contract.headers import OURS
from feedback.contract.states import RANK, SETTLED
from tests.support import bare_producer
from tests.support.programs import ROOT
from tests.support.service import WAIT, Bench

PAGE = (ROOT / "docs" / "contract.md").read_text()
BLOCKS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
EVENT, VECTORS = BLOCKS
OURS_TO_IMPORT = {"consumer", "processing", "feedback", "stack", "tests", "examples"}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["fingerprint"][:6])
def test_vectors_come_out_of_the_page_and_of_the_code(vector: dict[str, str]) -> None:
    content = vector["content"].encode()
    content_type = vector.get("content_type", "application/json")

    assert fingerprint(vector["type"], content, content_type).hex() == vector["fingerprint"]
    bare = bare_producer.fingerprint(vector["type"], content, content_type)
    assert bare == vector["fingerprint"]


def test_the_page_names_every_header_and_state() -> None:
    for header in OURS | {"ce_specversion", "ce_source", "traceparent", "tracestate"}:
        assert f"`{header}`" in PAGE
    for state, rank in RANK.items():
        settled = "yes" if state in SETTLED else ""
        assert re.search(rf"^\| `{state}` \| {rank} \| {settled} ?\|", PAGE, re.MULTILINE), state


def test_the_producer_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(bare_producer.__file__).read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & OURS_TO_IMPORT


def test_it_sends_and_hears_the_answers(bench: Bench) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    effect = {"id": "once", "type": "effect", "payload": {"table": bench.table}}
    requests: list[dict[str, Any]] = [
        effect,
        effect,
        {**effect, "payload": {"table": bench.table, "other": 1.5e-7}},
        {**effect, "id": "structured", "structured": True},
        {**effect, "id": "late", "headers": {"ce_expirytime": past}},
        {**effect, "id": "delayed", "headers": {"ce_notbefore": soon, "ce_timeout": "2.5"}},
        {"id": "refused", "type": "rejects", "payload": {}},
    ]

    answers = _send(bench, requests)

    ends = [(a["id"], a["state"], a["code"], a.get("conflict", False)) for a in answers]
    assert ends == [
        ("once", "done", "ok", False),
        ("once", "done", "ok", False),
        ("once", "done", "ok", True),
        ("structured", "done", "ok", False),
        ("late", "rejected", "expired", False),
        ("delayed", "done", "ok", False),
        ("refused", "rejected", answers[-1]["code"], False),
    ]
    rows = bench.query(f"SELECT id FROM {bench.table} ORDER BY id")
    assert [id_ for (id_,) in rows] == ["delayed", "once", "structured"]
    assert answers[3]["fingerprint"] == answers[0]["fingerprint"]


def test_the_event_of_the_page_is_a_request(bench: Bench) -> None:
    bench.start(ONCEPOOL_WORKERS="1")
    event = {**EVENT, "type": "effect", "notbefore": None, "data": {"table": bench.table}}
    headers = {"content-type": "application/cloudevents+json"}
    status = _send(bench, [{"id": event["id"], "type": "effect", "payload": event["data"],
                            "structured": True, "headers": headers}])[0]  # fmt: skip

    assert (status["id"], status["state"]) == ("order-17", "done")


def _send(bench: Bench, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    redis = urlsplit(bench.stack.redis)
    done = subprocess.run(
        [
            sys.executable, "-I", str(Path(bare_producer.__file__)), bench.stack.kafka,
            str(redis.hostname), str(redis.port), bench.environment["ONCEPOOL_REDIS_PREFIX"],
            bench.topic,
        ],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=2 * WAIT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
