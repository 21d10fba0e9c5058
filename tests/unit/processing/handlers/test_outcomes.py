"""Reject, Retry and exceptions as states; texts that the journal can hold."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processing import App, InvalidPayload, InvalidResult, Reject, Retry
from processing.handlers.outcomes import Outcome, describe, outcome_of, safe_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "error, state, code, reason",
    [
        (Reject("no_funds"), "rejected", "no_funds", None),
        (Reject("no_funds", "12 short"), "rejected", "no_funds", "12 short"),
        (Retry(after=5, reason="busy"), "failed", "retry", "busy"),
        (InvalidPayload("the payload is not JSON", b""), "rejected", "invalid_payload", "the pay"),
        (InvalidResult("x"), "failed", "handler_error", None),
        (ValueError("x"), "failed", "handler_error", None),
        (SystemExit(3), "failed", "handler_error", None),
        (RecursionError(), "failed", "handler_error", None),
        (ExceptionGroup("g", [Reject("no_funds", "12 short")]), "rejected", "no_funds", "12 short"),
        (
            BaseExceptionGroup("g", [ExceptionGroup("h", [Retry(reason="busy")])]),
            "failed",
            "retry",
            "busy",
        ),
        (ExceptionGroup("g", [Reject("a"), Reject("b")]), "failed", "handler_error", None),
        (ExceptionGroup("g", [Reject("a"), ValueError("x")]), "failed", "handler_error", None),
    ],
)
def test_outcome_of(error: BaseException, state: str, code: str, reason: str | None) -> None:
    outcome = outcome_of(error)
    assert (outcome.state, outcome.code) == (state, code)
    assert (outcome.reason or "").startswith(reason or "")
    assert (outcome.error is None) == (code != "handler_error")


@pytest.mark.parametrize("error", [ValueError("x"), InvalidResult("x"), SystemExit()])
def test_external_effects_are_in_doubt_unless_the_handler_says_nothing_happened(
    error: BaseException,
) -> None:
    assert outcome_of(error, "external").state == "in_doubt"
    assert outcome_of(Reject("no"), "external").state == "rejected"
    assert outcome_of(Retry(), "external").state == "failed"
    assert outcome_of(InvalidPayload("", b""), "external").state == "rejected"
    # Another task of the group may have been cut off in its call.
    assert outcome_of(ExceptionGroup("g", [Reject("no")]), "external").state == "in_doubt"
    assert outcome_of(BaseExceptionGroup("g", [error]), "external").state == "in_doubt"


def test_retry_takes_a_timedelta_and_says_what_it_does_not_take() -> None:
    retry = outcome_of(Retry(after=timedelta(minutes=2))).retry
    assert retry is not None
    assert retry.due(NOW) == NOW + timedelta(minutes=2)
    for after in ("5", -1, timedelta(seconds=-1), float("nan")):
        with pytest.raises(ValueError, match=r"seconds from now, 0 or more, or a timedelta"):
            Retry(after=after)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Retry\(at=\) needs a time with an offset"):
        Retry(at="2026-01-01")  # type: ignore[arg-type]


def test_error_names_type_message_and_place() -> None:
    def broken() -> None:
        raise ValueError("the message")

    try:
        broken()
    except ValueError as error:
        text = outcome_of(error).error
    assert text is not None
    assert text.startswith("ValueError: the message (")
    assert "test_outcomes.py" in text
    assert text.endswith("in broken)")


def test_a_result_that_cannot_be_stored_names_its_handler_and_no_place_of_ours() -> None:
    app = App()

    @app.handler("t")
    def careless(payload: Any) -> dict[str, Any]:
        return {"x": object()}

    app.start_worker({})
    with pytest.raises(InvalidResult) as caught:
        app.handlers["t"].call({}, None, None)
    here = caught.tb
    text = describe(caught.value.with_traceback(here.tb_next))  # as a worker, which is ours, has it
    assert text == f"InvalidResult: {caught.value}"
    assert "handler 't', careless (" in text


def test_an_exception_whose_text_fails_is_still_named() -> None:
    class Worse(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert outcome_of(Worse()).error == "Worse (its __str__ fails)"


@given(st.text(st.characters(codec=None, exclude_categories=[])))
def test_safe_text_is_what_postgresql_takes(text: str) -> None:
    safe = safe_text(text)
    assert "\0" not in safe
    assert len(safe) <= 2000
    safe.encode()


def test_long_texts_are_cut() -> None:
    assert len(safe_text("x" * 10_000)) == 2000
    assert safe_text("x\0\ud800y") == "x\ufffd?y"


@pytest.mark.parametrize("code", ["", "No_funds", "no funds", "9lives", "x" * 65, "naïve"])
def test_reject_wants_snake_case(code: str) -> None:
    with pytest.raises(ValueError, match="not snake_case"):
        Reject(code)


def test_retry_says_when() -> None:
    assert Retry().due(NOW) is None
    assert Retry(5).due(NOW) == NOW + timedelta(seconds=5)
    assert Retry(at=NOW).due(datetime.now(UTC)) == NOW
    assert outcome_of(Retry(after=1)).retry is not None
    for wrong in (
        {"after": -1},
        {"after": float("inf")},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the mistake that is meant
        {"after": 1, "at": NOW},
    ):
        with pytest.raises(ValueError, match="Retry"):
            Retry(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        Reject("no_funds", "12 short"),
        Retry(),
        Retry(after=5, reason="busy", counts=False),
        Retry(at=NOW, reason="busy"),
    ],
)
def test_what_a_handlers_own_processes_raise_comes_out_as_it_was(error: Reject | Retry) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))


def test_outcomes_compare() -> None:
    assert outcome_of(Reject("a", "b")) == Outcome(outcome_of(Reject("a")).state, "a", "b")


def test_the_place_is_the_deepest_in_the_applications_own_code() -> None:
    def handler() -> None:
        json.loads("{")

    try:
        handler()
    except ValueError as error:
        text = describe(error)
    assert text.endswith("in handler)")
    assert Path(__file__).name in text


def test_of_an_installed_application_it_is_the_package_that_was_entered() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        # As if the test were no frame of its own: json is what was entered first, and last.
        inner = error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
        assert describe(inner).endswith("in raw_decode)")
