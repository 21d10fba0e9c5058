from __future__ import annotations

import inspect

import pytest

from feedback import AsyncClient, Client

MORE = {"delivered", "submit_new"}
"""What waits until brokers have confirmed, or looks at no status: of the client of event loops."""
AT_ONCE = {"forked", "from_env", "submission"}
"""What never waits, and so is not awaited."""


def names(client: type) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_")}


def test_both_clients_have_the_same_names() -> None:
    assert names(AsyncClient) - names(Client) == MORE
    assert names(Client) - names(AsyncClient) == set()


@pytest.mark.parametrize("name", ["__init__", *sorted(names(Client))])
def test_a_name_takes_the_same_in_both(name: str) -> None:
    ours, theirs = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
    assert not inspect.iscoroutinefunction(ours)
    waits = not name.startswith("_") and name not in AT_ONCE
    assert inspect.iscoroutinefunction(theirs) is waits
