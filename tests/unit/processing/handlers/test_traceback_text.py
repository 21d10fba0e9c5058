"""What is kept of where a handler raised."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from processing import App
from processing.handlers.outcomes import outcome_of
from processing.handlers.traceback_text import LONGEST, traceback_text
from processing.handlers.tracebacks import Tracebacks
from processing.testing import run


def text_of(raises: Callable[[], Any]) -> str:
    try:
        raises()
    except BaseException as error:  # noqa: BLE001
        raised = outcome_of(error).raised
        assert raised is not None
        text = traceback_text(raised)
        kept = error.__traceback__
    assert kept is None, "nothing keeps the frames of what ran"
    return text


def charge() -> NoReturn:
    raise KeyError("card")


def pay() -> NoReturn:
    try:
        charge()
    except KeyError as error:
        raise ValueError("no card\0") from error


def test_it_is_as_python_prints_it() -> None:
    text = text_of(pay)
    assert text.count("Traceback (most recent call last):") == 2
    assert f'File "{__file__}", line ' in text
    assert ", in charge\n    raise KeyError" in text
    assert "KeyError: 'card'\n\nThe above exception was the direct cause" in text
    assert text.endswith("ValueError: no card\ufffd")
    try:
        charge()
    except KeyError as error:
        printed = "".join(traceback.format_exception(error))
    assert text_of(charge).splitlines()[-3:] == [
        line for line in printed.splitlines()[-3:] if "^" not in line
    ]


def test_what_was_raised_meanwhile_is_told_unless_it_was_left_out() -> None:
    def meanwhile() -> NoReturn:
        try:
            charge()
        except KeyError:
            raise ValueError("second")  # noqa: B904

    def alone() -> NoReturn:
        try:
            charge()
        except KeyError:
            raise ValueError("second") from None

    assert "During handling of the above exception" in text_of(meanwhile)
    assert "KeyError" not in text_of(alone)


def test_our_own_places_before_the_handler_are_left_out() -> None:
    app = App()

    @app.handler("pay")
    def handler(payload: Any) -> None:
        charge()

    raised = run(app, "pay", {}).exception
    assert raised is not None
    lines = traceback_text(Tracebacks(raised)).splitlines()
    assert lines[1].endswith("in handler")
    assert lines[-1] == "KeyError: 'card'"


def test_it_is_bounded() -> None:
    def deep(left: int) -> NoReturn:
        if left:
            deep(left - 1)
        raise ValueError("x" * 10_000)

    text = text_of(lambda: deep(500))
    assert "more\n" in text
    assert len(text) <= LONGEST
    assert text.endswith("x…")

    def chained(left: int) -> None:
        try:
            if left:
                chained(left - 1)
            charge()
        except (KeyError, ValueError) as error:
            raise ValueError(f"level {left}") from error

    text = text_of(lambda: chained(200))
    assert len(text) <= LONGEST
    assert text.endswith("ValueError: level 200")


def test_whatever_an_exception_is_it_is_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def mute() -> NoReturn:
        raise Mute

    def group() -> NoReturn:
        raise ExceptionGroup("both", [ValueError("one" * LONGEST), ValueError("two")])

    assert "raise Mute" in text_of(mute)
    assert "ValueError: two" in text_of(group)
    assert "in group" in text_of(group), "places stay, however long one says what it says"


def test_no_source_is_parsed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what costs a thousand failures a second most."""
    monkeypatch.setattr(ast, "parse", lambda *_, **__: pytest.fail("it was parsed"))
    assert "in charge" in text_of(charge)
