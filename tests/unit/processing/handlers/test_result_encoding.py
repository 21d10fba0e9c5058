"""Results: what becomes JSON for the journal, and what is refused with which words."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from processing import App, InvalidResult, Reject, Request, Retry
from processing.handlers.handler import Handler

WHO = UUID(int=1)
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Receipt(BaseModel):
    number: str
    total: float = 0.0


class Aliased(BaseModel):
    order_id: str = Field(alias="orderId")


class Constants(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    total: float


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: float
    y: int = 0


NONE = inspect.Signature.empty  # no annotation at all


def returning(annotation: Any) -> Any:
    """A function that returns its payload, annotated so."""

    def function(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return value

    if annotation is not NONE:
        function.__annotations__["return"] = annotation
    return function


def handler_of(function: Any) -> Handler:
    app = App()
    app.handler("t")(function)
    app.start_worker({})
    return app.handlers["t"]


def returned(annotation: Any, value: Any) -> bytes | None:
    return handler_of(returning(annotation)).call(value, None, None)


@pytest.mark.parametrize(
    "annotation, value, data",
    [
        (NONE, None, None),
        (None, None, None),
        (Receipt | None, None, None),
        (Any, None, None),
        (NONE, {"a": [1, "x", None, True]}, b'{"a":[1,"x",null,true]}'),
        (NONE, (1, 2), b"[1,2]"),
        (NONE, {"n": 10**30}, b'{"n":1000000000000000000000000000000}'),
        (NONE, {"n": 10**30, "é": [None, WHO]}, None),
        (NONE, Point(1.5), b'{"x":1.5,"y":0}'),
        (NONE, [WHEN, WHO, Colour.RED], None),
        (NONE, Receipt(number="r"), b'{"number":"r","total":0.0}'),
        (NONE, {"receipt": Receipt(number="r")}, b'{"receipt":{"number":"r","total":0.0}}'),
        (NONE, "a \\u0000 b", None),
        (dict, {"a": 1}, b'{"a":1}'),
        (Receipt, {"number": "r"}, b'{"number":"r","total":0.0}'),
        (Receipt, Receipt(number="r"), b'{"number":"r","total":0.0}'),
        (Receipt | None, Receipt(number="r"), b'{"number":"r","total":0.0}'),
        (set[int], {1}, b"[1]"),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (dict[int, str], {1: "a"}, b'{"1":"a"}'),
        (list[float | None], [None, 1.0], b"[null,1.0]"),
        (int, 10**30, b"1000000000000000000000000000000"),
        (Aliased, {"orderId": "o"}, b'{"orderId":"o"}'),
        (Constants, Constants(total=1), b'{"total":1.0}'),
        (Point, Point(1.0), b'{"x":1.0,"y":0}'),
    ],
)
def test_result(annotation: Any, value: Any, data: bytes | None) -> None:
    found = returned(annotation, value)
    if data is None and value is not None:
        assert found is not None
        json.loads(found)
    else:
        assert found == data


def itself() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


async def never() -> None: ...


@pytest.mark.parametrize(
    "annotation, value, message",
    [
        (NONE, {"a": [1, {2}]}, r"result\['a'\]\[1\] is a set, which JSON cannot hold"),
        (NONE, Decimal(1), "result is a Decimal.*annotate the return type"),
        (NONE, b"x", "result is a bytes"),
        (NONE, {1: "a"}, "result has the key 1, and JSON keys are text"),
        (NONE, {"a": math.nan}, r"result\['a'\] is nan"),
        (NONE, [None, math.inf], r"result\[1\] is inf"),
        (NONE, {"n": [None, 10**30, -math.inf]}, r"result\['n'\]\[2\] is -inf"),
        (NONE, Point(math.nan), r"result\.x is nan"),
        (NONE, Receipt(number="r", total=math.nan), "total'.* is nan"),
        (NONE, ["\ud800"], r"result\[0\] has a lone surrogate"),
        (NONE, {"\ud800": 1}, "a key of result has a lone surrogate"),
        (NONE, ["a\0b"], r"U\+0000"),
        (NONE, {"\0": 1}, r"U\+0000"),
        (NONE, ["\\\0"], r"U\+0000"),
        (NONE, itself(), "nested deeper than 250 levels, or one that contains itself"),
        pytest.param(NONE, 10**5000, "JSON cannot hold: .*digits", id="too long"),
        (NONE, Reject("no"), "is a Reject.*raise it instead of returning it"),
        (NONE, object(), "is an object"),
        (None, 1, "returned int, its annotation says None"),
        (dict, [1], "returned list, its annotation says dict"),
        (dict, None, "returned NoneType, its annotation says dict"),
        (Receipt, None, "returned NoneType, its annotation says Receipt"),
        (Receipt, {"total": 1}, "its annotation says Receipt: number: Field required"),
        (list[float], [1.0, math.nan], r"result\[1\] is nan"),
        (list[float | None], [None, math.inf], r"result\[1\] is inf"),
        (Receipt, Receipt(number="r", total=math.nan), r"result\['total'\] is nan"),
        (Constants, Constants(total=math.nan), r"result\['total'\] is nan"),
        (str, "\ud800", "handler 't', function"),
        (str, "a\0", r"U\+0000"),
        (int, "x", "annotation says int"),
    ],
)
def test_refused_result(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidResult, match="(?s)" + message):
        returned(annotation, value)


def test_coroutine_is_told_as_such() -> None:
    coroutine = never()
    with pytest.raises(InvalidResult, match="coroutine that never ran"):
        returned(NONE, coroutine)
    coroutine.close()


def test_message_names_the_handler_and_its_place() -> None:
    with pytest.raises(InvalidResult, match=r"handler 't', function \(.*test_result_encoding\.py:"):
        returned(Receipt, 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_what_comes_through_is_json_of_the_same_value(value: Any) -> None:
    try:
        data = returned(NONE, value)
    except InvalidResult:
        shown = repr(value)
        assert any(sign in shown for sign in ("nan", "inf", r"\x00", r"\ud"))
        return
    assert (None if data is None else json.loads(data)) == value


def test_result_adapter_reads_a_stored_result() -> None:
    app = App()
    function = app.handler("t")(returning(Receipt))
    app.handler("u")(returning(NONE))
    app.handler("v")(returning(dict))
    adapter = app.handlers["t"].result_adapter  # a producer never starts a worker
    assert adapter is not None
    assert adapter.validate_python({"number": "r"}) == Receipt(number="r")
    assert app.handlers["u"].result_adapter is None
    assert app.handlers["v"].result_adapter is not None
    assert function.__oncepool_handler__ is app.handlers["t"]


def batch_of(function: Any) -> Handler:
    app = App()
    app.batch_handler("t")(function)
    app.start_worker({})
    return app.handlers["t"]


def requests(count: int) -> list[Request[Any]]:
    return [Request(str(n), "t", None, 1, {}, None, "t", 0, n, {"n": n}) for n in range(count)]


def test_batch_returns_one_outcome_for_each() -> None:
    failure, rejection, retry = ValueError("x"), Reject("no_stock"), Retry(after=1)

    def function(batch: list[Request[Any]]) -> list[Any]:
        return [batch[0].payload, None, failure, rejection, retry]

    results = batch_of(function).call_batch(requests(5), None)
    assert results == [b'{"n":0}', None, failure, rejection, retry]


def test_batch_results_are_validated_by_their_item() -> None:
    def function(batch: list[Request[Any]]) -> list[Receipt | Reject]:
        return [{"number": "r"}, Reject("no")]  # type: ignore[list-item]

    handler = batch_of(function)
    assert handler.call_batch(requests(2), None)[0] == b'{"number":"r","total":0.0}'
    assert handler.result_adapter is not None


@pytest.mark.parametrize(
    "results, message",
    [
        ([1], "returned 1 results for 2 requests"),
        (None, "returned NoneType; a batch handler returns a list"),
        ({1: 2, 3: 4}, "returned dict; a batch handler"),
        ([1, {2}], "is a set"),
    ],
)
def test_wrong_batch_results_fail_all(results: Any, message: str) -> None:
    with pytest.raises(InvalidResult, match=message):
        batch_of(lambda batch: results).call_batch(requests(2), None)


def test_payload_of_a_batch_is_validated() -> None:
    def function(batch: list[Request[Receipt]]) -> list[Any]:
        return [r.payload.number for r in batch]

    handler = batch_of(function)
    value, _ = handler.parse(b'{"number":"7"}', "application/json")
    assert value == Receipt(number="7")
    assert (
        orjson.loads(
            handler.call_batch([Request("1", "t", None, 1, {}, None, "t", 0, 0, value)], None)[0]  # type: ignore[arg-type]
        )
        == "7"
    )
