"""The functions that options bring: what is called with the request or the payload has to fit."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from processing import App, RegistrationError


def fine(payload: Any) -> None: ...
def nothing() -> None: ...
def by_name(*, payload: Any) -> None: ...
def two(payload: Any, more: Any) -> None: ...
async def awaited(payload: Any) -> None: ...


def refused(**options: Any) -> str:
    with pytest.raises(RegistrationError) as caught:  # at once, not at the start of a worker
        App().handler("pay", **options)(fine)
    return str(caught.value)


@pytest.mark.parametrize("check", [nothing, by_name])
def test_a_check_that_cannot_take_the_request(check: Any) -> None:
    text = refused(effect="external", check=check)
    assert text.startswith(f"check of 'pay', {check.__name__} (")
    assert "it has no parameter for the request, which is given first; add one, as in" in text


@pytest.mark.parametrize("option", ["fingerprint", "coalesce", "not_before"])
@pytest.mark.parametrize(
    "function, said",
    [
        (nothing, "is called with the payload alone, and takes () -> "),
        (by_name, "is called with the payload alone, and takes (*, payload"),
        (two, "is called with the payload alone, and takes (payload"),
        (awaited, "is async, and nothing awaits it here: write `def`"),
    ],
)
def test_what_cannot_take_the_payload(option: str, function: Any, said: str) -> None:
    text = refused(**{option: function})
    assert text.startswith("handler 'pay', fine (")
    assert f": {option}=: {function.__name__} (" in text
    assert said in text


@pytest.mark.parametrize("function", [str, operator.itemgetter("id"), lambda p, scale=2: p])
def test_what_a_library_brings_or_has_defaults_is_taken(function: Any) -> None:
    app = App()
    app.handler("pay", fingerprint=function, coalesce=function)(fine)
    app.start_worker()
    assert app.handlers["pay"].custom_fingerprint
