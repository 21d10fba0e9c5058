"""Rows of an outbox with times beyond all clocks, as other programs may write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from feedback.client.result import Result
from feedback.contract.states import State
from feedback.outbox.dead_letters import OutboxFilter, OutboxOperator
from feedback.outbox.relay import settling
from feedback.outbox.relay.depth import outbox_depth
from tests.support.asked import Asked
from tests.support.outbox import Outbox

FAR = {
    "never": "-infinity", "before": "0044-03-15 00:00Z BC", "first": "0001-01-01 00:00Z",
    "last": "9999-12-31 23:59:59Z", "beyond": "10000-01-01 00:00Z", "end": "294276-12-31 23:59:59Z",
    "always": "infinity",
}  # fmt: skip


def far(outbox_: Outbox, *columns: str) -> None:
    """Gives the rows of these names their times."""
    for name, time in FAR.items():
        changes = ", ".join(f"{column} = '{time}'" for column in columns)
        outbox_.run(f"UPDATE :schema.requests SET {changes} WHERE id = '{name}'")


def states(asked: Asked) -> dict[str, str]:
    return {name: row["state"] for name, row in asked.rows().items()}


def test_they_are_settled_and_so_are_their_neighbours(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the page ends with."""
    monkeypatch.setattr(settling, "PAGE", 2)
    asked = Asked(outbox_, *FAR, "open", "good")
    far(outbox_, "created_at", "sent_at")
    for name in (*FAR, "good"):
        asked.status(name, State.DONE)
    while asked.settling.page(asked.connection):
        pass
    assert states(asked) == {**dict.fromkeys([*FAR, "good"], "done"), "open": "sent"}


def test_what_failed_before_an_infinite_time_is_of_an_earlier_send(outbox_: Outbox) -> None:
    asked = Asked(outbox_, *FAR)
    far(outbox_, "created_at")
    for name in FAR:
        asked.status(name, State.FAILED, "handler_error")
    asked.settle()
    past = ("never", "before", "first")
    assert states(asked) == {name: "failed" if name in past else "sent" for name in FAR}


def test_result_records_settle_them(outbox_: Outbox) -> None:
    asked = Asked(outbox_, *FAR, "good")
    far(outbox_, "created_at")
    at = datetime.now(UTC)
    said = [Result(name, "t", State.DONE, "ok", None, at) for name in (*FAR, "good")]
    assert asked.settling.records(asked.connection, said) == []
    assert states(asked) == dict.fromkeys([*FAR, "good"], "done")


def test_they_are_sent_though_they_are_delayed_for_ever(outbox_: Outbox) -> None:
    asked = Asked(outbox_)
    asked.add(*FAR, "good")
    far(outbox_, "not_before")
    asked.send()
    assert states(asked) == dict.fromkeys([*FAR, "good"], "sent")


def test_operators_see_them(outbox_: Outbox) -> None:
    asked = Asked(outbox_, *FAR, "good")
    asked.add("unsent")
    outbox_.run("UPDATE :schema.requests SET created_at = '-infinity' WHERE id = 'unsent'")
    far(outbox_, "created_at", "sent_at", "next_at")
    operator = OutboxOperator(asked.connection, outbox_.schema)
    shown = {row["id"]: row for row in operator.rows(OutboxFilter(states=("sent", "unsent")), 99)}
    assert list(shown) == [*FAR, "good", "unsent"]
    assert shown["never"]["created_at"].year == 1970
    assert shown["always"]["next_at"].year == 9999
    ages = [row["oldest"] for row in operator.figures()]
    ages += [
        row.oldest for row in outbox_depth(asked.connection, outbox_.schema, "default", most=9)
    ]
    assert all(map(math.isfinite, ages))
