from __future__ import annotations

import pytest
from pydantic import BaseModel, field_validator

from feedback.contract.fingerprint import fingerprint
from feedback.contract.record import Record
from feedback.contract.states import HANDLER_ERROR, INVALID_PAYLOAD, State
from processing import App
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task

SMALL, LARGE = b'{"text": "1234567890"}', b'{"text": "12345678901"}'
LIMITS = Limits(default_timeout=60, max_payload=len(SMALL))

seen: list[str] = []
"""What code of the user's was shown."""


class Note(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def _look(cls, value: str) -> str:
        seen.append(value)
        return value


def show(payload: Note) -> str:
    seen.append(payload.text)
    return payload.text


@pytest.fixture
def app() -> App:
    seen.clear()
    app = App()

    def note(payload: Note) -> None: ...

    app.handler("note")(note)
    app.handler("own", fingerprint=show)(note)
    app.handler("held", coalesce=show)(note)
    app.start_worker({})
    return app


def task_of(app: App, kind: str, payload: bytes) -> Task:
    pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", kind.encode())]
    record: Record = ("topic", 0, 1, 1_700_000_000_000, None, payload, pairs, kind, None)
    task = read_task(app, 0, record, LIMITS)
    assert isinstance(task, Task)
    return task


@pytest.mark.parametrize("kind", ["note", "own", "held"])
def test_no_code_of_the_users_sees_a_payload_that_is_too_large(app: App, kind: str) -> None:
    task = task_of(app, kind, LARGE)

    assert seen == []
    assert task.outcome is not None
    assert (task.outcome.state, task.outcome.code) == (State.REJECTED, INVALID_PAYLOAD)
    assert task.outcome.reason == "23 bytes of payload; at most 22 are taken"


def test_a_payload_of_the_largest_size_is_taken(app: App) -> None:
    task = task_of(app, "note", SMALL)

    assert (task.outcome, task.payload) == (None, Note(text="1234567890"))


@pytest.mark.parametrize("kind", ["note", "own"])
def test_what_is_too_large_has_the_fingerprint_of_its_payload(app: App, kind: str) -> None:
    """Also of a type that makes its own, which no code of the user's may see it for."""
    made = fingerprint(kind, b'{"text":"12345678901"}')
    assert task_of(app, kind, LARGE).fingerprint == made


def test_without_a_value_it_is_rejected(app: App) -> None:
    pairs: list[tuple[str, bytes | None]] = [("ce_id", b"a"), ("ce_type", b"note")]
    task = read_task(app, 0, ("topic", 0, 1, 0, None, None, pairs, "note", None), LIMITS)
    assert isinstance(task, Task)
    assert task.outcome is not None
    assert task.outcome.code == INVALID_PAYLOAD


def test_a_reference_that_is_no_text_is_its_own_failure() -> None:
    """PostgreSQL does not take it: that was found out with all the others of its chunk."""
    app = App()
    app.handler("raw", coalesce=lambda payload: payload.decode("utf-8", "surrogateescape"))(take)
    app.start_worker({})
    task = task_of(app, "raw", b"sku \xff")
    assert task.outcome is not None
    assert (task.outcome.state, task.outcome.code) == (State.FAILED, HANDLER_ERROR)


def take(payload: bytes) -> None:
    """Nothing."""
