from __future__ import annotations

import dataclasses
import time
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from feedback.client.pending import Submission
from feedback.contract.envelope import read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.errors import ResultMismatch
from feedback.status.status import Status
from processing import App
from tests.support.client import drafted

AT = datetime(2030, 5, 1, tzinfo=UTC)


class Price(pydantic.BaseModel):
    value: float


def make(payload: Any = None, **options: Any) -> tuple[Any, Submission]:
    kind = options.pop("type", "t")
    message, submission = drafted(kind, payload, reply_to="me", **options)
    record = (
        message.topic, 0, 0, message.timestamp, message.key, message.value,
        list(message.headers), None, None,
    )  # fmt: skip
    return read(record), submission


def status(submission: Submission, state: State, result: Any = None) -> Status:
    """What a consumer says of it."""
    printed = submission.fingerprint
    return Status(
        submission.id, submission.type, state, "ok", 1, 1, AT, fingerprint=printed, result=result
    )


def test_a_draft_is_what_a_consumer_reads() -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    envelope, submission = make(
        {"a": 1},
        request_id="order-17",
        key="customer-3",
        not_before=due,
        expires=due + timedelta(seconds=5),
        timeout=2,
        reference="r",
        headers={"content-type": "application/json; charset=utf-8", "x": b"y"},
    )
    assert (envelope.id, envelope.type, envelope.key) == ("order-17", "t", b"customer-3")
    assert envelope.payload == b'{"a":1}'
    assert envelope.options.not_before == pytest.approx(due.timestamp())
    assert envelope.options.expires_at == pytest.approx(due.timestamp() + 5)
    assert (envelope.options.timeout, envelope.options.reference, envelope.reply_to) == (
        2.0,
        "r",
        "me",
    )
    assert envelope.headers == {"x": "y"}
    assert submission.fingerprint == fingerprint("t", b'{ "a": 1 }').hex()
    assert submission.waits_for == pytest.approx(3600, abs=5)


def test_a_draft_makes_an_id_and_uses_it_as_the_key() -> None:
    envelope, submission = make([])
    assert uuid.UUID(envelope.id).version == 7
    assert envelope.key == envelope.id.encode() == submission.id.encode()
    assert envelope.time == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
def test_a_delay_is_a_time_from_now(delay: Any) -> None:
    envelope, _ = make(delay=delay, expires=delay)
    assert envelope.options.not_before == pytest.approx(time.time() + 90, abs=5)
    assert envelope.options.expires_at == envelope.options.not_before


@pytest.mark.parametrize(
    "options, error",
    [
        ({"request_id": ""}, ValueError),
        ({"request_id": "a\n"}, ValueError),
        ({"type": ""}, ValueError),
        ({"type": 5}, TypeError),
        ({"type": len}, TypeError),
        ({"delay": 1, "not_before": AT}, ValueError),
        ({"not_before": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001  (the case)
        ({"not_before": datetime(2020, 1, 1, tzinfo=UTC)}, ValueError),
        ({"delay": -1}, ValueError),
        ({"delay": timedelta(days=-1)}, ValueError),
        ({"delay": 11 * 366 * 86400}, ValueError),
        ({"delay": float("inf")}, ValueError),
        ({"delay": float("nan")}, ValueError),
        ({"expires": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001  (the case)
        ({"expires": float("nan")}, ValueError),
        ({"expires": 1e20}, ValueError),
        ({"expires": timedelta(days=9_999_999)}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"headers": {"ce_id": "x"}}, ValueError),
        ({"headers": {"content-type": "application/cloudevents+json"}}, ValueError),
        ({"payload": b"{"}, ValueError),
        ({"requestid": "a"}, TypeError),
    ],
)
def test_a_draft_refuses_what_no_consumer_takes(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        make(**options)


def test_what_was_due_may_be_sent_again_under_an_id_of_the_callers() -> None:
    envelope, _ = make(not_before=datetime(2020, 1, 1, tzinfo=UTC), request_id="mine")
    assert envelope.options.not_before == datetime(2020, 1, 1, tzinfo=UTC).timestamp()


def test_bytes_that_are_no_json_need_a_content_type() -> None:
    with pytest.raises(ValueError, match="content-type"):
        make(b"\xff")
    envelope, _ = make(b"\xff", headers={"content-type": b"image/png"})
    assert (envelope.payload, envelope.options.content_type) == (b"\xff", "image/png")


class Declared:
    type = "payment.create"
    result_adapter = pydantic.TypeAdapter(list[Decimal])


def handler() -> None: ...


handler.__oncepool_handler__ = Declared()  # type: ignore[attr-defined]


def test_a_handler_names_its_type_and_types_its_results() -> None:
    envelope, submission = make({}, type=handler)
    assert envelope.type == "payment.create"
    done = status(submission, State.DONE, ["1.10"])
    answer = submission.answer(done)
    assert answer is not None
    assert answer.result == [Decimal("1.10")]
    with pytest.raises(ResultMismatch) as caught:
        submission.answer(dataclasses.replace(done, result={"a": 1}))
    assert caught.value.status.result == {"a": 1}
    failed = status(submission, State.FAILED)
    assert submission.answer(failed) is failed


def test_a_handler_of_an_app_is_one() -> None:
    app = App()

    @app.handler("price.quote")
    def quote(payload: dict[str, Any]) -> Price:
        return Price(value=1.5)

    envelope, submission = make({}, type=quote)
    assert envelope.type == "price.quote"
    done = status(submission, State.DONE, {"value": 2.5})
    answer = submission.answer(done)
    assert answer is not None
    assert answer.result == Price(value=2.5)


@pytest.mark.parametrize(
    "option",
    [
        {"request_id": 17}, {"request_id": b"a"}, {"key": 5}, {"delay": "5"}, {"delay": True},
        {"not_before": 3.5}, {"expires": "soon"}, {"reference": 1}, {"headers": [("a", "b")]},
        {"headers": {"a": 1}}, {"timeout": "30"},
    ],
)  # fmt: skip
def test_what_has_another_type_is_refused_in_words(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(TypeError, match=rf"^{name.removesuffix('s')}.*: it has to be "):
        drafted("t", 1, **option)
