"""Errors as callers handle them."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from feedback.contract.states import State
from feedback.errors import (
    ClientClosed,
    ConfigurationError,
    Conflict,
    DeliveryFailed,
    DeliveryPending,
    Malformed,
    OncepoolError,
    QueueFull,
    RequestIdInUse,
    ResultMismatch,
    ResultsFailed,
    SchemaMissing,
    UnknownSender,
    WaitTimeout,
)
from feedback.status.status import Status

STATUS = Status("a", "t", State.RUNNING, "ok", 1, 1, datetime(2030, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "error",
    [
        ClientClosed(),
        ConfigurationError("x"),
        Conflict("a", STATUS),
        DeliveryFailed({"a": "timed out"}, 3),
        DeliveryPending(2, 5.0),
        Malformed("no type", "a"),
        QueueFull("a", 5.0),
        RequestIdInUse("a"),
        ResultMismatch(STATUS, "no int"),
        ResultsFailed("results", "no rights"),
        SchemaMissing("oncepool", 1, 2),
        UnknownSender("x", ["default"]),
        WaitTimeout("a", 5.0, STATUS),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_of_another_process_as_it_was(error: OncepoolError) -> None:
    """As pools of processes hand it to who waits there."""
    error.add_note("seen in worker 3")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
