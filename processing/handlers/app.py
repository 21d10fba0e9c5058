"""The application: handlers, decoders and hooks, as users declare them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from feedback.contract.schedule import Missed, Schedule
from processing.handlers.decoder import Decoder
from processing.handlers.errors import RegistrationError
from processing.handlers.handler import Handler
from processing.handlers.hooks import Resources
from processing.handlers.loading import load_app
from processing.handlers.options import CheckedOptions, HandlerOptions, validate_type
from processing.handlers.periodic import read_schedule, refuse_payload
from processing.handlers.request import Request
from processing.handlers.signature import Signature, caller_locals, describe, read_signature
from processing.handlers.tracebacks import let_go

__all__ = ["App", "load_app"]

F = TypeVar("F", bound=Callable[..., Any])

_ABOVE: Any = None
"""The function of a decorator that was called for itself, which takes no arguments."""
_log = logging.getLogger("oncepool.app")


class App:
    """What `oncepool run module:attribute` loads: declare handlers with its decorators.

    `handlers` (by type), `decoders` (by topic) and `schedules` (by name) are what was declared. A
    worker calls `start_worker` once, before it runs requests, and `stop_worker` at its end.
    """

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.decoders: dict[str, Decoder] = {}
        self.schedules: dict[str, Schedule] = {}
        self._start: list[Signature] = []
        self._stop: list[Signature] = []
        self._terminate: list[Signature] = []
        self._error: list[Signature] = []
        self._resources: Resources | None = None  # None = not started

    def handler(self, type: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register a function for requests of this type; docs/handlers.md has the options."""
        _refuse_bare("handler", "'payment.create'", type)

        def register(function: F) -> F:
            self._register(type, function, options, caller_locals(), batch=False)
            return function

        return register

    def batch_handler(self, type: str, **options: Unpack[HandlerOptions]) -> Callable[[F], F]:
        """Register a function that gets a list of requests and returns one result for each."""
        _refuse_bare("batch_handler", "'payment.create'", type)

        def register(function: F) -> F:
            self._register(type, function, options, caller_locals(), batch=True)
            return function

        return register

    def periodic(
        self,
        cron: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "latest",
        payload: Any = None,
    ) -> Callable[[F], F]:
        """Have a handler come by the clock as well; stands above its `@app.handler(type)`.

        One request per tick over all instances, its id made of `name` (the type, if left out) and
        the tick's time. `tz` names the time zone whose clocks `cron` goes by. `missed` says what
        becomes of ticks while no instance was there: the newest runs, "all" do, or none ("skip").
        `payload` is what the handler gets; None: a `Tick`.
        """
        _refuse_bare("periodic", "'0 6 * * mon-fri'", cron)

        def register(function: F) -> F:
            schedule = read_schedule(
                function, cron, tz=tz, name=name, missed=missed, payload=payload
            )
            if schedule.name in self.schedules:
                raise RegistrationError(
                    f"periodic {cron!r}, {describe(function)}: there is a schedule"
                    f" {schedule.name!r} already; give one of them another name="
                )
            self.schedules[schedule.name] = schedule
            return function

        return register

    def decoder(self, topic: str) -> Callable[[F], F]:
        """Register a function from RawMessage to Message or Skip for the messages of a topic."""
        _refuse_bare("decoder", "'orders'", topic)

        def register(function: F) -> F:
            what = f"decoder of topic {topic!r}"
            signature = self._declared(function, what, caller_locals())
            if topic in self.decoders:
                raise signature.error("the topic has a decoder already; keep one of them")
            required = sum(p.required for p in signature.parameters)
            if required > 1 or not signature.takes_first():
                raise signature.error("a decoder takes one parameter, the raw message")
            self.decoders[topic] = function
            return function

        return register

    def on_worker_start(self, function: F = _ABOVE) -> F:
        """Run it when a worker starts. What it returns or yields is there for handlers.

        A mapping gives each value under its key, another object is given under the function's
        name; both also by their type. What stands after a `yield` runs when the worker stops. An
        `async def` runs in the event loop in which async handlers run.
        """
        what = "on_worker_start"
        self._start.append(self._declared(function, what, caller_locals(), awaited=True))
        return function

    def on_worker_stop(self, function: F = _ABOVE) -> F:
        """Run it when a worker stops, before the start hooks close what they opened."""
        what = "on_worker_stop"
        self._stop.append(self._declared(function, what, caller_locals(), awaited=True))
        return function

    def on_terminate(self, function: F = _ABOVE) -> F:
        """Run it when a worker is about to be killed. It runs inside a signal handler: be brief."""
        self._terminate.append(self._declared(function, "on_terminate", caller_locals()))
        return function

    def on_error(self, function: F = _ABOVE) -> F:
        """Run it when a handler has raised what is neither Reject nor Retry: for error trackers.

        It gets the exception first; by name or annotation `request`, and what the start hooks
        provide. It runs once a run, when that run's end is written. What it raises is logged.
        """
        signature = self._declared(function, "on_error", caller_locals(), awaited=True)
        signature.require_first("the exception")
        self._error.append(signature)
        return function

    def start_worker(self, resources: Mapping[str, Any] | None = None) -> None:
        """Run the start hooks, keep their resources, and bind every handler to them.

        `resources` stand in for what the start hooks would give: then no hook runs. Raises
        RegistrationError, and whatever a hook raises; then all that was opened is closed again.
        """
        if self._resources is not None:
            raise RegistrationError("the worker has started already: call stop_worker() first")
        if not self.handlers:
            raise RegistrationError(
                "the app has no handlers: register one with @app.handler(type), and import the "
                "modules that do so in the one that is loaded"
            )
        started = Resources()
        try:
            if resources is None:
                for hook in self._start:
                    started.start(hook)
            else:
                started.by_name.update(resources)
            self._bind(started.by_name)
            started.bind_ends(self._stop, self._terminate)
            started.bind_errors(self._error)
        except BaseException:
            started.close()
            raise
        self._resources = started

    def stop_worker(self) -> None:
        """Run the stop hooks, then close what generator hooks opened, last opened first.

        Each runs even where another raised; what they raised comes as an ExceptionGroup, or a
        BaseExceptionGroup with what is no Exception.
        """
        resources, self._resources = self._resources, None
        if resources is not None and (errors := resources.stop()):
            raise BaseExceptionGroup("hooks failed while the worker stopped", errors)

    def terminate(self) -> None:
        """Run the on_terminate hooks. What they raise is logged: a handler may be running."""
        if self._resources is None:
            return
        for error in self._resources.terminate():
            _log.error("on_terminate failed", exc_info=error)

    @property
    def reports_errors(self) -> bool:
        """Whether there is an on_error hook."""
        return bool(self._error)

    def report_error(self, error: BaseException, request: Request[Any], seconds: float) -> None:
        """Run the on_error hooks, for so long together. What they raise is logged."""
        if self._resources is None:
            return
        for failure in self._resources.report(error, request, seconds):
            _log.error("on_error failed", exc_info=failure)
            let_go(failure)

    def _register(
        self,
        type: str,
        function: Callable[..., Any],
        given: HandlerOptions,
        localns: Mapping[str, Any] | None,
        *,
        batch: bool,
    ) -> None:
        what = f"{'batch handler' if batch else 'handler'} {type!r}"
        signature = self._declared(function, what, localns, awaited=not batch)
        validate_type(type, signature.place)
        if type in self.handlers:
            raise signature.error(
                f"the type has a handler already, {self.handlers[type].place}; "
                "give one of them another type"
            )
        options = CheckedOptions.read(given, signature.place)
        check = None
        if options.check is not None:
            what = f"check of {type!r}"
            check = read_signature(options.check, what, localns, awaited=True)
            check.require_first("the request")
        handler = Handler(type, signature, options, check=check, batch=batch)
        self.handlers[type] = handler
        # Producers may pass the function instead of its type. Bound methods take no attributes.
        with contextlib.suppress(AttributeError):
            function.__oncepool_handler__ = handler  # type: ignore[attr-defined]

    def _declared(
        self,
        function: Callable[..., Any],
        what: str,
        localns: Mapping[str, Any] | None,
        *,
        awaited: bool = False,
    ) -> Signature:
        if function is _ABOVE:
            raise RegistrationError(f"write @app.{what} above the function, without parentheses")
        signature = read_signature(function, what, localns, awaited=awaited)
        if self._resources is not None:
            raise signature.error(
                "it is registered after the worker has started, and would never be bound; "
                "register it at import"
            )
        return signature

    def _bind(self, resources: Mapping[str, Any]) -> None:
        wrong = []
        for handler in self.handlers.values():
            try:
                handler.bind(resources)
                for schedule in self.schedules.values():
                    if schedule.type == handler.type:
                        refuse_payload(schedule, handler)
            except RegistrationError as error:
                wrong.append(str(error))
        if wrong:
            raise RegistrationError("\n".join(wrong))


def _refuse_bare(decorator: str, example: str, given: object) -> None:
    """A decorator without its parentheses takes the function for its argument."""
    if callable(given):
        raise RegistrationError(
            f"@app.{decorator} above {describe(given)} lacks its argument: "
            f"write @app.{decorator}({example})"
        )
