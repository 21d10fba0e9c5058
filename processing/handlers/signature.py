"""What a callable declares: its parameters and annotations, resolved as far as they can be."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from processing.handlers.errors import RegistrationError

NO_ANNOTATION = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An annotation whose names could not be found, and why."""

    annotation: Any
    why: str

    def __str__(self) -> str:
        return f"{self.annotation!r} ({self.why})"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter; `annotation` is resolved, Unresolved or NO_ANNOTATION."""

    name: str
    annotation: Any
    required: bool
    positional_only: bool
    keyword_only: bool


@dataclass(slots=True)
class Signature:
    """A callable as declared. `place` names it in messages: `pay (shop/app.py:12)`."""

    function: Callable[..., Any]
    name: str
    place: str
    parameters: list[Parameter]
    returns: Any
    _globals: dict[str, Any] = field(repr=False)

    def resolve(self) -> None:
        """Try again what could not be resolved: names that were defined after the callable."""
        self.parameters = [
            replace(p, annotation=_resolve(p.annotation, self._globals, None))
            for p in self.parameters
        ]
        self.returns = _resolve(self.returns, self._globals, None)

    def unresolved(self) -> bool:
        """Whether a parameter's annotation could not be resolved yet."""
        return any(isinstance(p.annotation, Unresolved) for p in self.parameters)

    @property
    def asynchronous(self) -> bool:
        """Whether it is an `async def`, to be awaited, or a generator of that kind."""
        return _is_async(_called(self.function))

    def takes_first(self) -> bool:
        """Whether something can be given by place."""
        return bool(self.parameters) and not self.parameters[0].keyword_only

    def require_first(self, wanted: str) -> None:
        """Raises RegistrationError where nothing can be given by place; `wanted` is given so."""
        if not self.takes_first():
            raise self.error(
                f"it has no parameter for {wanted}, which is given first; "
                f"add one, as in `def {self.name}({wanted.removeprefix('the ')}, ...)`"
            )

    def error(self, problem: str) -> RegistrationError:
        """The error that says `problem` about this callable."""
        return RegistrationError(f"{self.place}: {problem}")


def read_signature(
    function: Callable[..., Any],
    what: str,
    localns: Mapping[str, Any] | None,
    *,
    awaited: bool,
) -> Signature:
    """The signature of a function, method, partial or callable object.

    `what` says what it is registered as, for messages; `localns` holds the names of the scope in
    which it is defined. Refuses what can't be called with named parameters, and, where it is not
    to be `awaited`, what is async.
    """
    base = _base_function(function)
    name = str(getattr(base, "__name__", type(function).__name__))
    if base is not function and name == "__call__":
        name = type(function).__name__
    place = f"{what}, {name}{_location(base)}"
    _refuse_kinds(function, base, place, awaited=awaited)
    try:
        declared = _inspect(function)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"{place}: its parameters cannot be read ({error}); wrap it in a function of your own"
        ) from error
    names = _globals_of(base)
    parameters = []
    for parameter in declared.parameters.values():
        _refuse_stars(parameter, place)
        parameters.append(_parameter(parameter, _resolve(parameter.annotation, names, localns)))
    returns = _resolve(declared.return_annotation, names, localns)
    return Signature(function, name, place, parameters, returns, names)


def _refuse_stars(parameter: inspect.Parameter, place: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise RegistrationError(
            f"{place}: it takes {stars}{parameter.name}, so what it needs cannot be seen; "
            "name its parameters (a decorator keeps them with functools.wraps)"
        )


def _parameter(parameter: inspect.Parameter, annotation: Any) -> Parameter:
    return Parameter(
        parameter.name,
        annotation,
        parameter.default is parameter.empty,
        parameter.kind is parameter.POSITIONAL_ONLY,
        parameter.kind is parameter.KEYWORD_ONLY,
    )


def caller_locals() -> Mapping[str, Any] | None:
    """The local names of the function that called the one that asks; None in a module."""
    frame = sys._getframe(2)  # noqa: SLF001 - a snapshot of the caller's names
    return None if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def refuse_unfit(function: Callable[..., Any], wanted: str) -> None:
    """Raises RegistrationError where it can't be called with one value, or has to be awaited.

    What a library brings may have no signature, and is taken as it is.
    """
    if _is_async(_called(function)):
        raise RegistrationError(
            f"{describe(function)} is async, and nothing awaits it here: write `def`"
        )
    try:
        declared = _inspect(function)
    except (TypeError, ValueError):
        return
    try:
        declared.bind(None)
    except TypeError:
        raise RegistrationError(
            f"{describe(function)} is called with {wanted} alone, and takes {declared}"
        ) from None


def describe(function: Callable[..., Any]) -> str:
    """Its name and where it stands: `pay (shop/app.py:12)`."""
    base = _base_function(function)
    return f"{getattr(base, '__qualname__', repr(function))}{_location(base)}"


def _base_function(function: Callable[..., Any]) -> Any:
    """The function whose code runs, below partials, wrappers, methods and `__call__`."""
    base: Any = inspect.unwrap(function)
    while isinstance(base, functools.partial):
        base = inspect.unwrap(base.func)
    if not inspect.isroutine(base) and not isinstance(base, type):
        base = inspect.unwrap(getattr(type(base), "__call__", base))  # noqa: B004 - its code
    return getattr(base, "__func__", base)


def _location(base: Any) -> str:
    code = getattr(base, "__code__", None)
    if code is None:
        return ""
    path = Path(code.co_filename)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return f" ({path}:{code.co_firstlineno})"


def _refuse_kinds(function: Any, base: Any, place: str, *, awaited: bool) -> None:
    if not callable(function):
        raise RegistrationError(f"{place}: {function!r} cannot be called; register a function")
    if isinstance(function, type):
        raise RegistrationError(
            f"{place}: it is a class; register a function, or an object of it that has __call__"
        )
    called = _called(function)
    if not awaited and (_is_async(base) or _is_async(called)):
        raise RegistrationError(
            f"{place}: it is async, and nothing awaits it here: write `def`, and asyncio.run(...) "
            "inside if a library needs it"
        )
    if _is_async(base) and not _is_async(called):
        raise RegistrationError(
            f"{place}: it is async, and the decorator around it is not, so nobody knows whether a "
            "call gives what can be awaited: write the decorator's own function as `async def`"
        )


def _called(function: Callable[..., Any]) -> Any:
    """What a call enters first: a wrapper, where there is one."""
    called: Any = function
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called) and not isinstance(called, type):
        called = getattr(type(called), "__call__", called)  # noqa: B004 - its code
    return called


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _inspect(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _globals_of(base: Any) -> dict[str, Any]:
    names = getattr(base, "__globals__", None)
    return names if isinstance(names, dict) else {}


def _resolve(annotation: Any, globalns: dict[str, Any], localns: Mapping[str, Any] | None) -> Any:
    if isinstance(annotation, Unresolved):
        annotation = annotation.annotation
    if annotation is NO_ANNOTATION:
        return annotation
    holder = SimpleNamespace(__annotations__={"it": annotation})
    names = {**globalns, **localns} if localns else globalns
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001 - an annotation is an expression, anything may go wrong
        return Unresolved(annotation, f"{type(error).__name__}: {error}")
