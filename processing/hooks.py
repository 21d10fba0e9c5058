"""What an application does when a worker starts, stops or is about to be killed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from processing.binding import bind, check_resource_name
from processing.errors import RegistrationError
from processing.signature import Signature


class Resources:
    """What the start hooks gave, by name, and what must be closed again. Owner: one worker."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}
        self._open = contextlib.ExitStack()

    def start(self, hook: Signature) -> None:
        """Run one start hook, which may take what earlier ones gave, and keep what it gives."""
        call = _bound(hook, self.by_name)
        with _named(hook):
            if inspect.isgeneratorfunction(hook.function):
                given = self._open.enter_context(contextlib.contextmanager(call)())
            else:
                given = call()
        for name, value in _provided(hook, given).items():
            if name in self.by_name:
                raise hook.error(
                    f"it provides {name!r}, and an earlier hook does too; rename one of them"
                )
            self.by_name[name] = value

    def close(self) -> None:
        """Run what stands after each hook's `yield`, last opened first."""
        self._open.close()


def run_all(hooks: list[Signature], resources: Mapping[str, Any]) -> list[Exception]:
    """Run each hook, also after one of them raised; what they raised."""
    errors: list[Exception] = []
    for hook in hooks:
        try:
            with _named(hook):
                _bound(hook, resources)()
        except Exception as error:  # noqa: BLE001 - user code: told to the caller
            errors.append(error)
    return errors


def _bound(hook: Signature, resources: Mapping[str, Any]) -> Callable[[], Any]:
    hook.resolve()
    given = bind(hook, hook.parameters, resources, ()).resources
    return lambda: hook.function(**given)


def _provided(hook: Signature, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    named = dict(given) if isinstance(given, Mapping) else {hook.name: given}
    return {check_resource_name(name, hook.place): value for name, value in named.items()}


@contextlib.contextmanager
def _named(hook: Signature) -> Any:
    try:
        yield
    except RegistrationError:
        raise
    except Exception as error:
        error.add_note(f"raised by the hook {hook.place}")
        raise
