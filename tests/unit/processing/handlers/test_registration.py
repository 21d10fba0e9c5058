"""Registration: what is accepted, and what each refusal says."""

from __future__ import annotations

import functools
import re
import sys
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import BaseModel

from processing import App, RegistrationError, Request, RetryPolicy
from processing.handlers.handler import Handler

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class Http:
    pass


class Payment(BaseModel):
    amount: int


def start(function: Any, resources: dict[str, Any] | None = None, **options: Any) -> Handler:
    app = App()
    app.handler("pay", **options)(function)
    app.start_worker(resources or {})
    return app.handlers["pay"]


def refused(function: Any, resources: dict[str, Any] | None = None, **options: Any) -> str:
    with pytest.raises(RegistrationError) as caught:
        start(function, resources, **options)
    return str(caught.value)


# What a function may look like


class Payer:
    def __call__(self, payload: Payment, tx: psycopg.Cursor[Any]) -> int:
        return payload.amount

    def method(self, payload: Payment) -> int:
        return payload.amount + 1

    @staticmethod
    def static(payload: Payment) -> int:
        return payload.amount + 2


def with_rate(rate: int, payload: Payment, *, currency: str = "EUR") -> str:
    return f"{payload.amount * rate} {currency}"


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "function, result",
    [
        (Payer(), b"3"),
        (Payer().method, b"4"),
        (Payer.static, b"5"),
        (functools.partial(with_rate, 2), b'"6 EUR"'),
        (functools.partial(with_rate, 2, currency="USD"), b'"6 USD"'),
        (wrapped(Payer().method), b"4"),
        (wrapped(functools.partial(with_rate, 2)), b'"6 EUR"'),
    ],
)
def test_any_callable_with_named_parameters(function: Any, result: bytes) -> None:
    handler = start(function)
    payload, _ = handler.parse(b'{"amount":3}', "application/json")
    assert handler.call(payload, None, None) == result


def test_function_stays_directly_callable() -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: Payment, tx: Any) -> int:
        return payload.amount

    assert pay(Payment(amount=2), None) == 2


def test_parameters_by_name_annotation_and_resource() -> None:
    http, other = Http(), object()

    def function(
        payload: Any,
        cursor: psycopg.Cursor[Any],
        seen: Request[Any],
        http: Any,
        client: Http,
        *,
        other: object,
        default: int = 5,
    ) -> list[bool]:
        return [cursor is cur, seen is request, http is h, client is h, other is o, default == 5]

    cur, request, h, o = object(), object(), http, other
    handler = start(function, {"http": http, "other": other})
    assert handler.wants_tx
    assert handler.wants_request
    result = handler.call({}, request, cur)  # type: ignore[arg-type]
    assert result == b"[true,true,true,true,true,true]"


def test_names_decide_without_annotations() -> None:
    def function(payload, request, tx):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return [request, tx]

    assert start(function).call({}, 1, 2) == b"[1,2]"  # type: ignore[arg-type]


def test_annotations_of_classes_defined_in_a_function() -> None:
    class Local(BaseModel):
        a: int

    app = App()

    @app.handler("pay")
    def function(payload: Local) -> Local:
        return payload

    app.start_worker({})
    handler = app.handlers["pay"]
    assert isinstance(handler.parse(b'{"a":1}', "application/json")[0], Local)


def forward(payload: Later) -> Later:
    return payload


early = App()
early.handler("pay")(forward)


class Later(BaseModel):
    a: int


def test_annotations_of_classes_defined_later() -> None:
    early.start_worker({})
    assert isinstance(early.handlers["pay"].parse(b'{"a":1}', "application/json")[0], Later)


def test_names_for_type_checkers_only_do_no_harm_where_names_decide() -> None:
    def function(payload: Any, tx: Missing, request: Missing) -> None: ...

    handler = start(function, effect="transaction")
    assert handler.wants_tx
    assert handler.wants_request


def test_the_default_effect_may_be_named_without_tx() -> None:
    for options in ({}, {"effect": "transaction"}):
        handler = start(lambda payload: None, **options)
        assert (handler.effect, handler.wants_tx) == ("transaction", False)


def test_the_executors_attributes() -> None:
    handler = start(lambda payload, tx: None, timeout=5, retries=2, status_ttl=60)
    assert handler.type == "pay"
    assert handler.effect == "transaction"
    assert handler.timeout == 5
    assert handler.retries == RetryPolicy(attempts=3)
    assert handler.status_ttl == 60
    assert not handler.batch
    assert not handler.custom_fingerprint
    assert not handler.wants_request


# What is refused, and in which words


async def is_async(payload: Any) -> None: ...
async def async_generator(payload: Any) -> Any:
    yield


def no_parameter() -> None: ...
def only_keyword(*, payload: Any) -> None: ...
def tx_first(tx: Any, payload: Any) -> None: ...
def request_first(it: Request[Any]) -> None: ...
def stars(*args: Any) -> None: ...
def double_stars(payload: Any, **rest: Any) -> None: ...
def positional(payload: Any, tx: Any, /) -> None: ...
def two_cursors(payload: Any, tx: Any, cursor: psycopg.Cursor[Any]) -> None: ...
def a_connection(payload: Any, tx: psycopg.Connection[Any]) -> None: ...
def mistyped(payload: Any, reqest: Any) -> None: ...
def unknown(payload: Any, database: Any) -> None: ...
def mistyped_resource(payload: Any, htpp: Any) -> None: ...
def resource_first(http: Http, payload: Any) -> None: ...
def by_type(payload: Any, client: Http) -> None: ...
def of_missing(payload: Missing) -> None: ...
def returns_missing(payload: Any) -> Missing: ...
def asks_missing(payload: Any, thing: Missing) -> None: ...
def of_a_class(payload: Http) -> None: ...
def returns_bytes(payload: Any) -> bytes: ...  # type: ignore[empty-body]
def takes_tx(payload: Any, tx: Any) -> None: ...
def fine(payload: Any) -> None: ...
def generator(payload: Any) -> Iterator[int]:
    yield 1


def self_first(self: Any, payload: Any) -> None: ...


@pytest.mark.parametrize(
    "function, message",
    [
        (is_async, "it is async, and its effects are in the journal's transaction.*`def`"),
        (async_generator, "it is a generator"),
        (generator, "it is a generator"),
        (no_parameter, "no parameter for the payload.*`def no_parameter\\(payload, ...\\)`"),
        (only_keyword, "no parameter for the payload"),
        (tx_first, "its first parameter 'tx' asks for tx.*put a parameter for the payload before"),
        (request_first, "its first parameter 'it' asks for request"),
        (stars, r"takes \*args.*functools\.wraps"),
        (double_stars, r"takes \*\*rest"),
        (positional, "parameter 'tx' is positional only.*move the `/`"),
        (two_cursors, "parameters 'tx' and 'cursor' both ask for tx; keep one"),
        (a_connection, "'tx' is annotated Connection, and tx is a cursor.*psycopg.Cursor"),
        (mistyped, "parameter 'reqest' is unknown; did you mean 'request'.*Available here: tx, re"),
        (unknown, "parameter 'database' is unknown. Available here: tx, request, http.*on_worker_"),
        (mistyped_resource, "'htpp' is unknown; did you mean 'http'"),
        (resource_first, "its first parameter 'http' is named after the resource"),
        (of_missing, "payload: its annotation 'Missing' .*NameError.* cannot be resolved; define"),
        (returns_missing, "result: its annotation 'Missing'"),
        (asks_missing, "parameter 'thing' is unknown, and its annotation 'Missing' .*resolved"),
        (of_a_class, "payload: its annotation Http is nothing that pydantic can make from JSON"),
        (returns_bytes, "result is annotated bytes, and results are JSON"),
        (self_first, r"not bound to an object; register it on one: app\.handler\('pay'\)"),
        (Http, "it is a class; register a function, or an object of it that has __call__"),
        (3, "3 cannot be called"),
    ],
)
def test_refused_function(function: Any, message: str) -> None:
    text = refused(function, {"http": Http()})
    assert text.startswith("handler 'pay', ")
    assert re.search("(?s)" + message, text), text


class Half(BaseModel):
    other: Undefined  # type: ignore[name-defined]  # noqa: F821


class Old(typing.TypedDict):
    a: int


def of_half(payload: Half) -> None: ...
def of_old(payload: Old) -> None: ...
def of_union(payload: list[Payment] | Missing) -> None: ...
def many(payload: dict[str, Payment], things: list[int]) -> None: ...


def test_models_that_pydantic_cannot_complete() -> None:
    assert "payload: its annotation Half uses 'Undefined', which is not defined" in refused(of_half)
    assert "cannot be resolved" in refused(of_union)
    assert "parameter 'things' is unknown" in refused(many, {"a": [1]})


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it from 3.12 on")
def test_typed_dicts_that_pydantic_cannot_read() -> None:
    assert "its annotation Old is refused by pydantic: Please use `typing_ext" in refused(of_old)


def test_builtins_have_no_readable_parameters() -> None:
    assert "its parameters cannot be read" in refused(max)


def test_several_resources_of_one_type() -> None:
    text = refused(by_type, {"a": Http(), "b": Http()})
    assert "several resources are of that type: a, b; name the parameter after one" in text


@pytest.mark.parametrize(
    "function, options, message",
    [
        (takes_tx, {"effect": "none"}, 'effect="none" has no transaction, and it takes tx'),
        (fine, {"effect": "extern"}, "effect='extern': one of transaction, external, none"),
        (fine, {"check": fine}, 'give effect="external" too, or leave check out'),
        (fine, {"effect": "external", "check": 1}, "check=1: a function"),
        (fine, {"effect": "external", "coalesce": str}, 'coalesce= needs effect="transaction"'),
        (fine, {"done_status": False}, "done_status=False leaves no trace of a success"),
        (fine, {"window": 3}, "window and window_cap belong to coalesce="),
        (
            fine,
            {"coalesce": str, "window": -1},
            "window=-1: a number of seconds above 0",
        ),
        (fine, {"coalesce": str, "window": 9, "window_cap": 3}, "window_cap=3 is below window=9"),
        (fine, {"fingerprint": "x"}, "fingerprint='x': a function"),
        (fine, {"timeout": 0}, "timeout=0: a number of seconds above 0"),
        (fine, {"timeout": True}, "timeout=True"),
        (fine, {"timeout": float("nan")}, "timeout=nan"),
        (fine, {"timeout": "5"}, "timeout='5'"),
        (fine, {"timeout": 5, "max_timeout": 3}, "max_timeout=3 is below timeout=5"),
        (fine, {"retries": -1}, "retries=-1: a whole number"),
        (fine, {"retries": "3"}, "retries='3'"),
        (fine, {"status_ttl": 60.5}, "status_ttl=60.5: a whole number, at least 1"),
        (fine, {"status_ttl": float("inf")}, "status_ttl=inf: a whole number, at least 1"),
        (fine, {"status_ttl": 0}, "status_ttl=0: a whole number, at least 1"),
        (fine, {"status_ttl": 10**12}, "at most"),
        (fine, {"max_at_once": 0}, "max_at_once=0"),
        (fine, {"pipeline": 1}, "pipeline=1: True or False"),
        (fine, {"effect": ["none"]}, "effect=['none']: one of transaction, external, none"),
        (fine, {"timout": 5}, "the option 'timout' is unknown; did you mean 'timeout'"),
        (fine, {"xyz": 5}, "the option 'xyz' is unknown. Options: timeout,"),
    ],
)
def test_refused_options(function: Any, options: dict[str, Any], message: str) -> None:
    app = App()
    with pytest.raises(RegistrationError) as caught:  # at once, not at the start of a worker
        app.handler("pay", **options)(function)
    assert str(caught.value).startswith("handler 'pay', ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": 1.5}, "attempts=1.5"),
        ({"attempts": True}, "attempts=True"),
        ({"base": 0}, r"base=0\): a number above 0"),
        ({"base": 10**400}, r"base=1000*\): a number above 0"),
        ({"cap": float("inf")}, r"cap=inf\): a number above 0"),
        ({"factor": 0.5}, r"factor=0.5\): a number at least 1"),
        ({"base": 5, "cap": 3}, r"cap=3\): a number at least 5"),
        ({"jitter": 2}, r"jitter=2\): a number at least 0 and at most 1"),
        ({"on": (ValueError, "x")}, r"on=.*'x'\)\): an exception class, or a tuple"),
        ({"on": []}, r"on=\[\]\): an exception class"),
        ({"on": int}, r"on=<class 'int'>\): an exception class"),
        ({"attempt": 3}, r"the option 'attempt' is unknown; did you mean 'attempts'\? Options: at"),
        ({"attempts": 3, "bse": 5}, r"'bse' is unknown; did you mean 'base'\?"),
        ({"base": 600, "xyz": 1}, r"'xyz' is unknown\. Options: attempts, base,"),
    ],
)
def test_refused_retry_policy(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        RetryPolicy(**arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((3, "x"), r"RetryPolicy\(base='x'\): a number above 0"),
        ((3, 1, 2, 9, 0.5, OSError, 7), "RetryPolicy: it takes 6 arguments"),
    ],
)
def test_refused_places_of_a_retry_policy(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        RetryPolicy(*arguments)


def test_retry_policy_takes_a_list_of_exceptions() -> None:
    assert RetryPolicy(attempts=3, on=[ValueError, OSError]).on == (ValueError, OSError)


def test_the_cap_of_a_retry_policy_that_names_none_is_at_least_its_base() -> None:
    policy = RetryPolicy(attempts=3, base=600, jitter=0)
    assert (policy.base, policy.cap, policy.pause(1, lambda: 0.0)) == (600, 600, 600)
    assert RetryPolicy(3, 10).cap == 300
    assert RetryPolicy(3, 600, 2, 900).cap == 900
    for given in ((3, 600, 2, 300), (3, 600, 2, 300, 0.1)):
        with pytest.raises(RegistrationError, match=r"cap=300\): a number at least 600"):
            RetryPolicy(*given)


def test_seconds_of_a_status_may_be_written_as_a_float() -> None:
    handler = start(lambda payload: None, status_ttl=60.0)
    assert (handler.status_ttl, type(handler.status_ttl)) == (60, int)


def test_retry_policy_takes_one_exception() -> None:
    assert RetryPolicy(attempts=3, on=OSError).on is OSError
    assert RetryPolicy.of(RetryPolicy(attempts=7)).attempts == 7


@pytest.mark.parametrize("type_", ["", "x" * 201, "a\nb", "a\x7f", "a\ud800", None, 3])
def test_refused_type(type_: Any) -> None:
    with pytest.raises(RegistrationError, match="request type"):
        App().handler(type_)(fine)


@pytest.mark.parametrize("decorator", ["handler", "batch_handler", "decoder"])
def test_decorator_without_its_brackets_is_refused_at_once(decorator: str) -> None:
    with pytest.raises(RegistrationError, match=rf"fine \(.*\.py:\d+\).*@app\.{decorator}\('"):
        getattr(App(), decorator)(fine)  # as `@app.handler` above a function does


def test_two_handlers_of_one_type_name_both_places() -> None:
    app = App()
    app.handler("pay")(fine)
    with pytest.raises(RegistrationError, match=r"takes_tx \(.*has a handler already, .*fine \("):
        app.handler("pay")(takes_tx)


def test_all_wrong_handlers_are_told_at_once() -> None:
    app = App()
    app.handler("a")(mistyped)
    app.handler("b")(fine)
    app.handler("c")(unknown)
    with pytest.raises(RegistrationError) as caught:
        app.start_worker()
    assert [line.partition(",")[0] for line in str(caught.value).splitlines()] == [
        "handler 'a'",
        "handler 'c'",
    ]


def test_an_app_without_handlers_is_refused() -> None:
    with pytest.raises(RegistrationError, match="no handlers"):
        App().start_worker()


def test_registering_after_the_start_is_refused() -> None:
    app = App()
    app.handler("a")(fine)
    app.start_worker()
    with pytest.raises(RegistrationError, match="after the worker has started"):
        app.handler("b")(fine)
    with pytest.raises(RegistrationError, match="has started already"):
        app.start_worker()


def test_a_handler_that_is_not_bound_says_so() -> None:
    app = App()
    app.handler("a")(fine)
    with pytest.raises(RegistrationError, match=r"call app\.start_worker\(\) first"):
        app.handlers["a"].parse(b"{}", "application/json")


# Batch handlers


def batch_refused(function: Any, **options: Any) -> str:
    app = App()
    try:
        app.batch_handler("view", **options)(function)
        app.start_worker({})
    except RegistrationError as error:
        return str(error)
    return "accepted"


def batch_of_models(requests: list[Payment]) -> None: ...
def batch_of_one(request: Request[Any]) -> None: ...
def batch_no_list(requests: dict[str, Any]) -> None: ...
def batch_returns_one(requests: list[Request[Any]]) -> Payment: ...  # type: ignore[empty-body]
def batch_request(requests: list[Request[Any]], request: Any) -> list[Any]: ...
def batch(requests: list[Request[Any]], tx: Any) -> None: ...


@pytest.mark.parametrize(
    "function, options, message",
    [
        (batch_of_models, {}, "Payment is no request; a batch handler gets a list of requests"),
        (batch_of_one, {}, "first parameter 'request' asks for request"),
        (batch_no_list, {}, "is no list; a batch handler gets a list of requests"),
        (batch_returns_one, {}, "Payment is no list; a batch handler returns a list"),
        (batch_request, {}, "'request' is not given here: remove the parameter"),
        (batch, {"effect": "external"}, "register it with app.handler"),
        (batch, {"effect": "none"}, 'effect="none" has no transaction'),
        (no_parameter, {}, "add one, as in `def no_parameter(requests, ...)`"),
    ],
)
def test_refused_batch_handler(function: Any, options: dict[str, Any], message: str) -> None:
    text = batch_refused(function, **options)
    assert text.startswith("batch handler 'view', ")
    assert message in text
