"""Rows that are refused again and again by real brokers, with the pauses that a relay makes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.outbox.relay.batch import MOST_FAILURES, PAUSES
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.outbox import Outbox
from tests.support.relay_process import RelayProcess
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

SENDERS = ("nowhere",)
REFUSED = {"large": "too_large", "lost": "topic_missing"}
LATE = timedelta(seconds=25)
"""After a pause, at most: brokers are asked, and whoever else uses the machine."""
LIMIT = 4_000
LONGEST = 420.0


class Watched:
    """What the outbox says of the refused rows, each time that it changes."""

    def __init__(self, outbox_: Outbox) -> None:
        self._outbox = outbox_
        self.tries: dict[str, dict[int, tuple[datetime, datetime | None]]] = {
            n: {} for n in REFUSED
        }
        """By the number of refusals: when that was seen, and when it was to be tried again then."""
        self.others = 0

    def over(self) -> bool:
        """Looks; whether all are dead letters. Another row goes between any two tries."""
        found = self._outbox.rows("SELECT *, clock_timestamp() AS seen_at FROM :schema.requests")
        rows = {row["id"]: row for row in found}
        news = rows["large"]["failures"] > max(self.tries["large"], default=0)
        for name, tries in self.tries.items():
            row = rows[name]
            if row["failures"]:
                tries.setdefault(row["failures"], (row["seen_at"], row["next_at"]))
        sent = {name for name, row in rows.items() if row["state"] == "sent"}
        assert sent >= {f"other-{n}" for n in range(self.others)} or not news, "one was held up"
        assert "behind" not in sent or rows["large"]["state"] == "undeliverable"
        if news:
            add(self._outbox, f"other-{self.others}", {})
            self.others += 1
        return all(rows[name]["state"] == "undeliverable" for name in REFUSED)


def add(outbox_: Outbox, name: str, payload: Any, **options: Any) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", payload, request_id=name, **options)


@pytest.mark.long  # the pauses are more than three minutes
@pytest.mark.timeout(LONGEST + 60)
def test_a_refused_row_is_tried_at_longer_and_longer_intervals_and_holds_up_its_key_alone(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, missing = topic(**{"max.message.bytes": str(LIMIT)}), f"none-{uuid.uuid4().hex}"
    (tmp_path / "relay.toml").write_text(f'[outbox.routes.nowhere]\ntopic = "{missing}"\n')
    environment = {
        "ONCEPOOL_CONFIG": str(tmp_path / "relay.toml"),
        "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
        "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": name,
    }
    add(outbox_, "large", "x" * 2 * LIMIT, key="k")
    add(outbox_, "behind", {}, key="k")
    add(outbox_, "lost", {}, sender="nowhere")
    watched, problems = Watched(outbox_), list[AssertionError]()

    def over() -> bool:
        try:
            return watched.over()
        except AssertionError as problem:  # which is no "not yet"
            problems.append(problem)
            return True

    with RelayProcess(environment, tmp_path / "log") as one:
        eventually(over, LONGEST, lambda: f"{watched.tries} {one.log}")
        assert not problems, f"{watched.tries} {one.log}"
        wanted = {"behind", *(f"other-{n}" for n in range(watched.others))}
        eventually(lambda: set(ids(stack, name)) == wanted, 60, lambda: one.log)
        assert one.stop() == 0

    for tries in watched.tries.values():
        assert len(tries) > MOST_FAILURES - 3, "on a machine that stood still some are not seen"
        assert tries[MOST_FAILURES][1] is None
        for number, (seen, due) in tries.items():
            if number == MOST_FAILURES:
                continue
            assert due is not None
            pause = timedelta(seconds=PAUSES.after(number))
            assert pause - LATE < due - seen <= pause, "from when it was refused"
            if number + 1 in tries:
                assert due <= tries[number + 1][0] < due + LATE
    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    listed = answer(Commands(stack, "", "")("outbox", "list", "--json", **place))
    assert {row["id"]: (row["state"], row["code"]) for row in listed} == {
        id_: ("undeliverable", code) for id_, code in REFUSED.items()
    }
    errors = {row["id"]: row["error"] for row in listed}
    assert f"{name} takes {LIMIT}" in errors["large"]
    assert missing in errors["lost"]
