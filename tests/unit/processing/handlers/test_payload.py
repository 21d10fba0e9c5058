"""Payloads: what a handler is given for each annotation, and their fingerprints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Optional
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator
from typing_extensions import TypedDict

from feedback.contract.fingerprint import fingerprint
from feedback.contract.payloads import has_long_number, parse_json
from processing import App, InvalidPayload
from processing.handlers import codec
from processing.handlers.handler import Handler

JSON = "application/json"


class Payment(BaseModel):
    amount: int = Field(gt=0)
    currency: str = "EUR"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    who: UUID
    tags: set[str]


@dataclasses.dataclass
class Order:
    article: str
    count: int = 1


class Row(TypedDict):
    a: int


def bound(function: Any, **options: Any) -> Handler:
    app = App()
    app.handler("t", **options)(function)
    app.start_worker({})
    return app.handlers["t"]


def parsed(function: Any, payload: bytes, content_type: str = JSON) -> Any:
    return bound(function).parse(payload, content_type)[0]


def no_annotation(payload): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201


def any_payload(payload: Any) -> None: ...
def dict_payload(payload: dict) -> None: ...  # type: ignore[type-arg]
def str_dict_payload(payload: dict[str, Any]) -> None: ...
def mapping_payload(payload: Mapping[str, Any]) -> None: ...
def list_payload(payload: list[Any]) -> None: ...
def ints_payload(payload: dict[str, int]) -> None: ...
def bytes_payload(payload: bytes) -> None: ...
def model_payload(payload: Payment) -> None: ...
def optional_model(payload: Optional[Payment]) -> None: ...  # noqa: UP045 - as users write it
def union_model(payload: Payment | None) -> None: ...
def annotated_model(payload: Annotated[Payment, "a note"]) -> None: ...
def dataclass_payload(payload: Order) -> None: ...
def typed_dict_payload(payload: Row) -> None: ...
def strict_payload(payload: Strict) -> None: ...
def decimal_payload(payload: Decimal) -> None: ...
def text_payload(payload: str) -> None: ...


@pytest.mark.parametrize(
    "function, payload, value",
    [
        (no_annotation, b'{"a":[1,null]}', {"a": [1, None]}),
        (no_annotation, b"null", None),
        (any_payload, b"[1]", [1]),
        (dict_payload, b'{"a":1}', {"a": 1}),
        (str_dict_payload, b'{"a":1}', {"a": 1}),
        (mapping_payload, b'{"a":1}', {"a": 1}),
        (list_payload, b"[1,2]", [1, 2]),
        (ints_payload, b'{"a":1}', {"a": 1}),
        (bytes_payload, b'{ "a":1}', b'{ "a":1}'),
        (model_payload, b'{"amount":3}', Payment(amount=3)),
        (optional_model, b"null", None),
        (optional_model, b'{"amount":3}', Payment(amount=3)),
        (union_model, b"null", None),
        (annotated_model, b'{"amount":3}', Payment(amount=3)),
        (dataclass_payload, b'{"article":"x"}', Order("x")),
        (typed_dict_payload, b'{"a":1}', {"a": 1}),
        (decimal_payload, b'"1.10"', Decimal("1.10")),
        (text_payload, b'"abc"', "abc"),
    ],
)
def test_annotation_decides(function: Any, payload: bytes, value: Any) -> None:
    assert parsed(function, payload) == value


def test_strict_models_take_what_json_can_say() -> None:
    payload = b'{"day":"2026-01-02","who":"00000000-0000-0000-0000-000000000001","tags":["a"]}'
    value = parsed(strict_payload, payload)
    assert value.day == date(2026, 1, 2)
    assert value.tags == {"a"}


@pytest.mark.parametrize(
    "function, payload, message",
    [
        (dict_payload, b"[1]", "the payload is list, t takes dict"),
        (dict_payload, b"null", "the payload is null"),
        (list_payload, b"{}", "the payload is dict, t takes list"),
        (dict_payload, b"{", "not JSON"),
        (dict_payload, b"", "not JSON"),
        (dict_payload, b"\xff", "not JSON"),
        (any_payload, b'{"a":NaN}', "not JSON"),
        (any_payload, b'["\\ud800"]', "not JSON"),
        (model_payload, b'{"amount":NaN}', "not JSON"),
        (any_payload, b'{"a":1234567890123456789012,"b":NaN}', "NaN is not JSON"),
        (any_payload, b"[" * 5000 + b"]" * 5000, "not JSON"),
        (model_payload, b'{"amount":0}', "no Payment: amount: Input should be greater than 0"),
        (model_payload, b"{}", "amount: Field required"),
        (model_payload, b"[]", "no Payment"),
        (ints_payload, b'{"a":"x"}', "a: Input should be a valid integer"),
        (typed_dict_payload, b"{}", "a: Field required"),
        (dataclass_payload, b"{}", "article: Field required"),
    ],
)
def test_wrong_payloads_are_named_and_have_a_fingerprint(
    function: Any, payload: bytes, message: str
) -> None:
    with pytest.raises(InvalidPayload, match="(?s)" + message) as caught:
        parsed(function, payload)
    assert caught.value.fingerprint == fingerprint("t", payload, JSON)


def test_message_does_not_repeat_the_payload() -> None:
    with pytest.raises(InvalidPayload) as caught:
        parsed(model_payload, b'{"amount":"secret-card-number"}')
    assert "secret" not in str(caught.value)


def test_null_value_is_invalid_for_every_annotation() -> None:
    for function in (any_payload, bytes_payload, optional_model):
        with pytest.raises(InvalidPayload, match="no value") as caught:
            bound(function).parse(None, JSON)
        assert len(caught.value.fingerprint) == 16


def test_other_content_types_are_for_bytes_only() -> None:
    assert parsed(bytes_payload, b"\xff\x00", "image/png") == b"\xff\x00"
    with pytest.raises(InvalidPayload, match="'image/png' is not JSON, and t takes dict"):
        parsed(dict_payload, b"{}", "image/png")
    assert parsed(model_payload, b'{"amount":1}', "application/x+json; charset=utf-8").amount == 1


def test_bytes_that_should_be_json_and_are_not_are_the_handlers_business() -> None:
    value, digest = bound(bytes_payload).parse(b"{", JSON)
    assert value == b"{"
    assert digest == fingerprint("t", b"{", JSON)


@pytest.mark.parametrize("function", [any_payload, model_payload, ints_payload])
def test_integers_beyond_64_bits_stay_exact(function: Any) -> None:
    amount = 10**40 + 7
    value = parsed(function, b'{"amount":%d}' % amount)
    assert (value.amount if isinstance(value, Payment) else value["amount"]) == amount


@pytest.mark.parametrize("function", [any_payload, model_payload, bytes_payload])
def test_fingerprint_is_of_the_canonical_form(function: Any) -> None:
    handler = bound(function)
    first = handler.parse(b'{"amount":3,"currency":"EUR"}', JSON)[1]
    second = handler.parse(b' {"currency" : "EUR", "amount":3}', JSON)[1]
    other = handler.parse(b'{"amount":4,"currency":"EUR"}', JSON)[1]
    assert first == second != other


# Two parsers read the bytes of a model: what is fingerprinted must be what the handler gets.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)  # fmt: skip


@given(json_values, st.booleans())
@example(10**300, False)
@example(-(10**18), False)
@example([0.1, 1e300, 5e-324, 2.2250738585072011e-308], False)
def test_pydantic_reads_the_value_that_was_fingerprinted(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    read = TypeAdapter(Any).validate_json(data)
    ours = parse_json(data)
    assert read == ours
    assert repr(read) == repr(ours)
    assert isinstance(has_long_number(data), bool)


class Own:
    """Marks for payloads, as `fingerprint=` may give them."""

    @staticmethod
    def text(payload: Payment) -> str:
        return payload.currency

    @staticmethod
    def raw(payload: Payment) -> bytes:
        return payload.currency.encode()

    @staticmethod
    def value(payload: Payment) -> list[Any]:
        return [payload.currency]


@pytest.mark.parametrize("own", [Own.text, Own.raw, Own.value])
def test_own_fingerprint(own: Any) -> None:
    handler = bound(model_payload, fingerprint=own)
    assert handler.custom_fingerprint
    digests = {handler.parse(b'{"amount":%d}' % n, JSON)[1] for n in (1, 2, 3)}
    assert len(digests) == 1
    assert handler.parse(b'{"amount":1,"currency":"USD"}', JSON)[1] not in digests
    with pytest.raises(InvalidPayload) as caught:
        handler.parse(b"{", JSON)
    assert len(caught.value.fingerprint) == 16


@pytest.mark.parametrize("annotation", [dict, Any, list[dict[str, int]] | dict[str, int]])
def test_an_own_fingerprint_may_change_what_it_is_given(
    annotation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the canonical form, of which none is made of its payload, is not written twice."""
    written: list[Any] = []
    monkeypatch.setattr(codec, "canonical", lambda value: written.append(value) or b"")
    app = App()

    @app.handler("t", fingerprint=lambda payload: str(payload.pop("n")))
    def function(payload: Any) -> None: ...

    function.__annotations__["payload"] = annotation
    app.start_worker({})
    assert app.handlers["t"].parse(b'{"n":1}', JSON)[0] == {"n": 1}
    assert len(written) == 1


def test_what_a_validator_raises_by_mistake_comes_through() -> None:
    class Broken(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def check(cls, value: int) -> int:
            return {}[value]

    app = App()

    @app.handler("t")
    def function(payload: Broken) -> None: ...

    app.start_worker({})
    with pytest.raises(KeyError):
        app.handlers["t"].parse(b'{"a":1}', JSON)
