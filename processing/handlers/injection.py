"""Which parameter of a callable gets what: tx, request, or a resource from the start hooks."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from processing.handlers.errors import RegistrationError
from processing.handlers.request import Request
from processing.handlers.signature import Parameter, Signature, Unresolved
from processing.handlers.validation import did_you_mean

RESERVED = ("tx", "request")


@dataclass(slots=True)
class Binding:
    """Names of the parameters for tx and request, and a resource for each other one."""

    tx: str | None = None
    request: str | None = None
    resources: dict[str, Any] = field(default_factory=dict)


def source_of(parameter: Parameter) -> str | None:
    """Where the name or the annotation asks for one of them: `tx` or `request`."""
    if parameter.name in RESERVED:
        return parameter.name
    kind = _class_of(parameter.annotation)
    if kind is None:
        return None
    if issubclass(kind, Request):
        return "request"
    psycopg = sys.modules.get("psycopg")  # not loaded: then no annotation can be of it
    return "tx" if psycopg is not None and issubclass(kind, psycopg.Cursor) else None


def bind(
    signature: Signature,
    parameters: Iterable[Parameter],
    resources: Mapping[str, Any],
    offers: tuple[str, ...] = RESERVED,
) -> Binding:
    """What each of these parameters gets; raises RegistrationError where something is missing.

    `offers` says which of tx and request there are at this place.
    """
    binding = Binding()
    for parameter in parameters:
        if parameter.positional_only:
            raise signature.error(
                f"parameter {parameter.name!r} is positional only and is given by name; "
                "move the `/` before it"
            )
        source = source_of(parameter)
        if source in offers:
            _take_once(signature, parameter, binding, source)
        elif parameter.name in resources:
            binding.resources[parameter.name] = resources[parameter.name]
        elif (name := _by_type(signature, parameter, resources)) is not None:
            binding.resources[parameter.name] = resources[name]
        elif parameter.required:
            raise signature.error(_missing(parameter, resources, offers))
    return binding


def _take_once(
    signature: Signature, parameter: Parameter, binding: Binding, source: str | None
) -> None:
    taken = binding.tx if source == "tx" else binding.request
    if taken is not None:
        raise signature.error(
            f"parameters {taken!r} and {parameter.name!r} both ask for {source}; keep one"
        )
    if source == "tx":
        _refuse_other_than_cursor(signature, parameter)
        binding.tx = parameter.name
    else:
        binding.request = parameter.name


def _refuse_other_than_cursor(signature: Signature, parameter: Parameter) -> None:
    psycopg = sys.modules.get("psycopg")
    kind = _class_of(parameter.annotation)
    if psycopg is None or kind is None:
        return
    wrong = (psycopg.Connection, psycopg.AsyncConnection, psycopg.AsyncCursor)
    if issubclass(kind, wrong):
        raise signature.error(
            f"parameter {parameter.name!r} is annotated {kind.__name__}, and tx is a cursor in the "
            "worker's transaction: annotate it psycopg.Cursor"
        )


def _by_type(
    signature: Signature, parameter: Parameter, resources: Mapping[str, Any]
) -> str | None:
    kind = _class_of(parameter.annotation)
    if kind is None or kind.__module__ == "builtins":
        return None
    try:
        names = [name for name, value in resources.items() if isinstance(value, kind)]
    except TypeError:  # a Protocol that isinstance cannot check
        return None
    if len({id(resources[name]) for name in names}) > 1:
        raise signature.error(
            f"parameter {parameter.name!r} is annotated {kind.__name__}, and several resources are "
            f"of that type: {', '.join(sorted(names))}; name the parameter after one of them"
        )
    return names[0] if names else None


def _class_of(annotation: Any) -> type[Any] | None:
    """The class behind an annotation: of `Cursor[dict]`, `Annotated[Cursor, ...]`."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    kind = typing.get_origin(annotation) or annotation
    return kind if isinstance(kind, type) else None


def _missing(parameter: Parameter, resources: Mapping[str, Any], offers: tuple[str, ...]) -> str:
    known = [*offers, *sorted(resources)]
    text = f"parameter {parameter.name!r} is unknown"
    if isinstance(parameter.annotation, Unresolved):
        text += f", and its annotation {parameter.annotation} cannot be resolved"
    text += did_you_mean(parameter.name, known)
    text += f" Available here: {', '.join(known) or 'nothing'}"
    if parameter.name in RESERVED:
        return f"{text}. {parameter.name!r} is not given here: remove the parameter"
    return (
        f"{text}. Rename or remove it, give it a default, or provide it from an "
        "@app.on_worker_start hook"
    )


def check_resource_name(name: object, where: str) -> str:
    """A name under which a hook may provide a resource."""
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"{where}: it provides {name!r}, which no parameter can be named after; "
            "use names as in Python"
        )
    if name in RESERVED:
        raise RegistrationError(
            f"{where}: it provides {name!r}, a name that handlers already have; choose another"
        )
    return name
