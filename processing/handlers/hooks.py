"""What an application does when a worker starts, stops or is about to be killed."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from processing.handlers.awaiting import Call as HandlerCall
from processing.handlers.awaiting import waiting_at_most, waiting_for
from processing.handlers.errors import RegistrationError
from processing.handlers.handler import caller
from processing.handlers.injection import bind, check_resource_name
from processing.handlers.request import Request
from processing.handlers.signature import Signature

Call = Callable[[], Any]


class Resources:
    """What the start hooks gave, by name, and what must run at the end. Owner: one worker."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}
        self._open = contextlib.ExitStack()
        self._at_stop: list[Call] = []
        self._at_terminate: list[Call] = []
        self._at_error: list[tuple[HandlerCall, bool]] = []
        """Each, and whether it is to be awaited."""

    def start(self, hook: Signature) -> None:
        """Run one start hook, which may take what earlier ones gave, and keep what it gives."""
        call = _bound(hook, self.by_name)
        if inspect.isasyncgenfunction(hook.function):
            with _named(hook):
                given = self._enter(contextlib.asynccontextmanager(call)())
        elif inspect.isgeneratorfunction(hook.function):
            with _named(hook):
                given = self._open.enter_context(contextlib.contextmanager(call)())
        else:
            given = call()
        for name, value in _provided(hook, given).items():
            if name in self.by_name:
                raise hook.error(
                    f"it provides {name!r}, and an earlier hook does too; rename one of them"
                )
            self.by_name[name] = value

    def _enter(self, manager: contextlib.AbstractAsyncContextManager[Any]) -> Any:
        from processing.handlers.event_loop import LOOP

        given, leave = LOOP.enter(manager)
        self._open.callback(leave)
        return given

    def bind_ends(self, stop: Iterable[Signature], terminate: Iterable[Signature]) -> None:
        """Bind the hooks of the end: at the start, so that a wrong one is told there."""
        self._at_stop = [_bound(hook, self.by_name) for hook in stop]
        self._at_terminate = [_bound(hook, self.by_name) for hook in terminate]

    def bind_errors(self, hooks: Iterable[Signature]) -> None:
        """Bind the on_error hooks."""
        for hook in hooks:
            hook.resolve()
            found = bind(hook, hook.parameters[1:], self.by_name, ("request",))
            call = caller(hook.function, found)
            self._at_error.append((call, hook.asynchronous))

    def report(
        self, error: BaseException, request: Request[Any], seconds: float
    ) -> list[BaseException]:
        """Run the on_error hooks; what they raised. After `seconds` awaited ones are cancelled."""
        until = time.monotonic() + seconds
        calls = [waiting_at_most(call, until) if wait else call for call, wait in self._at_error]
        return _run_all([partial(call, error, request, None) for call in calls])

    def terminate(self) -> list[BaseException]:
        """Run the on_terminate hooks; what they raised."""
        return _run_all(self._at_terminate)

    def stop(self) -> list[BaseException]:
        """Run the stop hooks, then close; what they raised."""
        return _run_all([*self._at_stop, self.close])

    def close(self) -> None:
        """Run what stands after each hook's `yield`, last opened first."""
        self._open.close()


def _run_all(calls: list[Call]) -> list[BaseException]:
    """Runs each, whatever another raised. SystemExit would come out wherever this process is."""
    errors: list[BaseException] = []
    for call in calls:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - user code: told to the caller
            errors.append(error)
    return errors


def _bound(hook: Signature, resources: Mapping[str, Any]) -> Call:
    hook.resolve()
    given = bind(hook, hook.parameters, resources, ()).resources
    if hook.asynchronous and not inspect.isasyncgenfunction(hook.function):
        wait = waiting_for(lambda _first, _request, _tx: hook.function(**given))
        run = partial(wait, None, None, None)
    else:
        run = partial(hook.function, **given)

    def call() -> Any:
        with _named(hook):
            return run()

    return call


def _provided(hook: Signature, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    named = dict(given) if isinstance(given, Mapping) else {hook.name: given}
    return {check_resource_name(name, hook.place): value for name, value in named.items()}


@contextlib.contextmanager
def _named(hook: Signature) -> Iterator[None]:
    """Whatever is raised inside says from which hook it came."""
    try:
        yield
    except RegistrationError:
        raise
    except Exception as error:
        error.add_note(f"raised by the hook {hook.place}")
        raise
