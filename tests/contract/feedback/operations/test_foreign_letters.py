"""Dead letters whose headers stand in another form, on real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from feedback.operations.dead_letter_actions import drop_letters, resend_letter, retry_letter
from feedback.operations.dead_letters import (
    DeadLetterRef,
    list_dead,
    list_dead_heads,
    select_dead,
    show_dead,
)
from feedback.operations.dead_message import DeadMessage
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By
from tests.support.journal import Journal

BY = By("ann", "header repaired")


@pytest.mark.parametrize("headers", ['[[["x"], null]]', '[["ce_type", 1]]', '[["ce_type"]]'])
def test_headers_in_a_foreign_form_keep_no_other_from_the_list(
    journal: Journal, letter: Callable[..., int], headers: str
) -> None:
    """Written by hand, or by another version."""
    connection, schema = journal.connection, journal.schema
    number, other = letter(headers=headers), letter({"ce_type": "t"})
    rows = list_dead(connection, {}, 9, schema=schema)
    assert {row["id"]: row["type"] for row in rows} == {number: None, other: "t"}
    heads = list_dead_heads(connection, {}, 9, schema=schema)
    assert {row["id"]: row["type"] for row in heads} == {number: None, other: "t"}
    for filters in ({"type": "t"}, {"types": ["t"]}, {"search": "t"}):
        chosen = [one.name for one in select_dead(connection, filters, schema=schema)]
        assert str(other) in chosen
    shown = show_dead(connection, DeadLetterRef("message", str(number)), schema=schema)
    assert shown is not None
    assert shown["type"] is None

    sent: list[DeadMessage] = []
    for answer in (
        retry_letter(connection, number, BY, schema=schema),
        resend_letter(connection, number, sent.append, BY, schema=schema),
    ):
        assert isinstance(answer, Refusal)
        assert "nobody can read the headers" in answer.reason
    assert sent == []
    assert drop_letters(connection, [number], BY, schema=schema) == []
