"""A registered handler: parses a payload, calls the function, encodes what it returns."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from feedback.contract.headers import check_name, is_too_far
from feedback.errors import Malformed
from processing.handlers.annotations import (
    Shape,
    UnusableAnnotation,
    payload_in,
    result_in,
    shape_of,
)
from processing.handlers.awaiting import Call, waiting_for, waiting_until_deadline, with_threads
from processing.handlers.codec import Encode, Parse, payload_parser, result_encoder
from processing.handlers.errors import InvalidResult, RegistrationError
from processing.handlers.injection import RESERVED, Binding, bind, source_of
from processing.handlers.options import CheckedOptions, Effect
from processing.handlers.outcomes import Done, NotDone, Unknown
from processing.handlers.request import Request
from processing.handlers.retry_policy import RetryPolicy
from processing.handlers.signature import Signature

if TYPE_CHECKING:
    from processing.handlers.call_threads import CallThreads

CONCURRENCY = 10
"""Calls of one `async def` handler that a worker has open at most, where it does not say."""


class Handler:
    """Made by App when a function is registered; the executor reads its attributes.

    `bind` makes it ready to run in a worker: until then `parse` and the calls refuse.
    """

    def __init__(
        self,
        type: str,
        signature: Signature,
        options: CheckedOptions,
        *,
        check: Signature | None = None,
        batch: bool = False,
    ) -> None:
        self.type = type
        self.batch = batch
        self.effect: Effect = options.effect
        self.timeout = options.timeout
        self.max_timeout = options.max_timeout
        self.status_ttl = options.status_ttl
        self.done_status = options.done_status
        self.retries = RetryPolicy.of(options.retries)
        self.check = options.check
        self.coalesce = options.coalesce
        self.window = float(options.window)
        self.window_cap = options.window_cap
        self.not_before = options.not_before
        self.redelivery = options.redelivery
        self.max_at_once = options.max_at_once
        self.pipeline = options.pipeline
        self.asynchronous = signature.asynchronous
        self.concurrency = options.concurrency
        """Calls that one worker may have open; None where it is no `async def`."""
        self.custom_fingerprint = options.fingerprint is not None
        self.signature = signature
        self.wants_tx = False
        self.wants_request = False
        self._fingerprint = options.fingerprint
        self._check = check
        self._result: Shape | None = None
        self.parse: Parse = self._not_bound
        """(payload, content type) -> (the payload object, its fingerprint of 16 bytes).

        Raises InvalidPayload, which carries the fingerprint too. What a validator or `fingerprint=`
        function of the user's raises by mistake comes through as it is."""
        self._call: Call = self._not_bound
        self._awaited: Call = self._not_bound
        self._call_check: Call = self._not_bound
        self._encode: Encode = self._not_bound
        self._refuse_shape()
        self.wants_tx = "tx" in self._sources()
        self._read_concurrency()
        self._read_wants()

    @property
    def place(self) -> str:
        """Which handler it is and where it stands, for messages."""
        return self.signature.place

    @property
    def result_adapter(self) -> TypeAdapter[Any] | None:
        """Reads a stored result as the annotated type; None where nothing is annotated.

        For producers too, which never bind: the annotation is resolved on first use.
        """
        shape = self._result_shape()
        if shape.adapter is None and shape.plain_type is not None:
            return TypeAdapter(shape.plain_type)
        return shape.adapter

    def shapes(self) -> tuple[Shape, Shape]:
        """What its annotations ask of a payload and of a result; raises RegistrationError."""
        self.signature.resolve()
        annotation = self.signature.parameters[0].annotation
        return self._shape("payload", annotation, payload_in), self._result_shape()

    def call(self, payload: Any, request: Request[Any] | None, tx: Any) -> bytes | None:
        """Run the function; its result as JSON bytes, None where it returned None.

        Raises whatever the function raised, or InvalidResult. An `async def` runs in the event loop
        of this process and is waited for; it may be interrupted (Interrupted).
        """
        return self._encode(self._call(payload, request, tx))

    async def call_awaited(
        self, payload: Any, request: Request[Any] | None, threads: CallThreads
    ) -> bytes | None:
        """The same of an `async def`, to be awaited: it ends when its threads have, too."""
        return self._encode(await self._awaited(payload, request, threads))

    def call_batch(
        self, requests: list[Request[Any]], tx: Any
    ) -> list[bytes | BaseException | None]:
        """Run a batch function: one outcome per request, in order.

        Raises whatever the function raised, or InvalidResult (one result that can't be stored
        fails all, since the effects of that request stand among the others').
        """
        results = self._call(requests, None, tx)
        if not isinstance(results, list | tuple):
            raise InvalidResult(
                f"{self.place} returned {type(results).__name__}; a batch handler returns a list "
                "with one result, Reject, Retry or exception for each request"
            )
        if len(results) != len(requests):
            raise InvalidResult(
                f"{self.place} returned {len(results)} results for {len(requests)} requests; "
                "return one for each, in their order"
            )
        encode = self._encode
        return [r if isinstance(r, BaseException) else encode(r) for r in results]

    def call_check(self, request: Request[Any]) -> tuple[Done | NotDone | Unknown, bytes | None]:
        """Ask the check function; beside Done the result as JSON bytes."""
        answer = self._call_check(request, None, None)
        if isinstance(answer, Done):
            return answer, self._encode(answer.result)
        if isinstance(answer, NotDone | Unknown):
            return answer, None
        raise InvalidResult(
            f"{self._check.place if self._check else self.place} returned {answer!r}; "
            "a check returns Done(result), NotDone() or Unknown()"
        )

    def due(self, payload: Any) -> float | None:
        """Epoch seconds before which a payload does not run, as `not_before=` says.

        Raises ValueError for a time that cannot be meant, and whatever the function raised.
        """
        due: object = None if self.not_before is None else self.not_before(payload)
        if due is None:
            return None
        if not isinstance(due, datetime) or due.tzinfo is None:
            raise self._returned("not_before=", due, "a datetime with a time zone, or None")
        if is_too_far(due.timestamp()):
            raise self._returned("not_before=", due, "a time at most ten years ahead")
        return due.timestamp()

    def reference(self, payload: Any) -> str | None:
        """Under which a payload coalesces, as `coalesce=` says. Raises as due() does."""
        found: object = None if self.coalesce is None else self.coalesce(payload)
        if found is None:
            return None
        if not isinstance(found, str):
            raise self._returned("coalesce=", found, "text, or None")
        try:
            return check_name("it", found)
        except Malformed as error:
            raise self._returned("coalesce=", found, f"what may be a reference ({error})") from None

    def _returned(self, option: str, found: object, wanted: str) -> ValueError:
        what = found if isinstance(found, datetime) else found.__class__.__name__
        return ValueError(f"{self.place}: {option} returned {what}; return {wanted}")

    def bind(self, resources: Mapping[str, Any]) -> None:
        """Make the call plan with these resources; raises RegistrationError."""
        self.signature.resolve()
        self._read_wants()
        first, *others = self.signature.parameters
        if first.name in resources:
            raise self._first_is(f"is named after the resource {first.name!r}")
        payload, result = self.shapes()
        self.parse = payload_parser(self.type, payload, self._fingerprint)
        self._encode = result_encoder(result, self.place)
        binding = bind(self.signature, others, resources, ("tx",) if self.batch else RESERVED)
        self._call = caller(self.signature.function, binding)
        if self.asynchronous:
            self._awaited = with_threads(self._call)
            self._call = waiting_for(self._awaited)
        if self._check is not None:
            self._check.resolve()
            found = bind(self._check, self._check.parameters[1:], resources, ())
            self._call_check = caller(self._check.function, found)
            if self._check.asynchronous:
                self._call_check = waiting_until_deadline(self._call_check)

    def _not_bound(self, *_: Any) -> typing.NoReturn:
        raise RegistrationError(
            f"{self.place}: it is not ready to run; call app.start_worker() first"
        )

    def _refuse_shape(self) -> None:
        wanted = "the requests" if self.batch else "the payload"
        self.signature.require_first(wanted)
        if inspect.isgeneratorfunction(self.signature.function) or inspect.isasyncgenfunction(
            self.signature.function
        ):
            raise self.signature.error(
                "it is a generator: calling it would run nothing; return the result instead of "
                "yielding it"
            )
        first = self.signature.parameters[0]
        if first.name == "self":
            raise self.signature.error(
                "it is a method that is not bound to an object; "
                f"register it on one: app.handler({self.type!r})(object.{self.signature.name})"
            )
        if (source := source_of(first)) is not None:
            raise self._first_is(f"asks for {source}")
        if self.batch and self.effect == "external":
            raise self.signature.error(
                'a batch handler cannot have effect="external": each external effect is claimed '
                "and finished by itself; register it with app.handler"
            )

    def _first_is(self, what: str) -> RegistrationError:
        first = self.signature.parameters[0].name
        wanted = "the requests" if self.batch else "the payload"
        return self.signature.error(
            f"its first parameter {first!r} {what}, and the first one gets {wanted}; "
            f"put a parameter for {wanted} before it"
        )

    def _sources(self) -> list[str | None]:
        return [source_of(p) for p in self.signature.parameters[1:]]

    def _read_wants(self) -> None:
        """Which of tx and request it takes, and whether that fits its effect."""
        sources = self._sources()
        self.wants_tx = "tx" in sources
        self.wants_request = "request" in sources
        if self.effect == "none" and self.wants_tx:
            raise self.signature.error(
                'effect="none" has no transaction, and it takes tx; '
                'remove the parameter, or use effect="transaction"'
            )
        if self.pipeline and (self.batch or not (self.wants_tx or self.signature.unresolved())):
            raise self.signature.error(
                "pipeline= is for handlers of one request that take `tx`; leave it out"
            )

    def _read_concurrency(self) -> None:
        """How many calls may be open, and whether it may have any."""
        if not self.asynchronous:
            if self.concurrency is not None:
                raise self.signature.error(
                    "concurrency= is for `async def` handlers, as a worker runs others one at a "
                    "time; leave it out, and give more workers"
                )
            return
        if self.effect == "transaction":
            raise self.signature.error(
                "it is async, and its effects are in the journal's transaction, which one request "
                'at a time can use; write `def`, or give effect="external" where it calls another '
                'service, effect="none" where it changes nothing'
            )
        if self.wants_tx:
            raise self.signature.error(
                "it is async, and it takes tx, which one request at a time can use; "
                "remove the parameter, or write `def`"
            )
        self.concurrency = self.concurrency or CONCURRENCY

    def _shape(self, what: str, annotation: Any, item_of: Callable[[Any], Any]) -> Shape:
        try:
            return shape_of(item_of(annotation) if self.batch else annotation)
        except UnusableAnnotation as error:
            raise self.signature.error(f"{what}: {error}") from error

    def _result_shape(self) -> Shape:
        if self._result is None:
            self.signature.resolve()
            self._result = self._shape("result", self.signature.returns, result_in)
            if self._result.raw:
                raise self.signature.error(
                    "its result is annotated bytes, and results are JSON; "
                    "return text, such as base64, or store the bytes and return where they are"
                )
        return self._result


def caller(function: Callable[..., Any], binding: Binding) -> Call:
    """The call plan: a function of (first argument, request, tx) without any look-up left."""
    call = functools.partial(function, **binding.resources) if binding.resources else function
    tx_name, request_name = binding.tx, binding.request

    def plain(first: Any, _request: Any, _tx: Any) -> Any:
        return call(first)

    if tx_name is None and request_name is None:
        return plain
    if request_name is None:
        return _with_one(call, str(tx_name), of_request=False)
    if tx_name is None:
        return _with_one(call, request_name, of_request=True)

    def with_both(first: Any, request: Any, tx: Any) -> Any:
        return call(first, **{tx_name: tx, request_name: request})

    return with_both


def _with_one(call: Callable[..., Any], name: str, *, of_request: bool) -> Call:
    def with_tx(first: Any, _request: Any, tx: Any) -> Any:
        return call(first, **{name: tx})

    def with_request(first: Any, request: Any, _tx: Any) -> Any:
        return call(first, **{name: request})

    return with_request if of_request else with_tx
