"""What an annotation asks of a value: plain JSON, bytes, or a pydantic type."""

from __future__ import annotations

import collections.abc
import typing
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)

from processing.handlers.signature import NO_ANNOTATION, Unresolved

# Annotations that JSON gives as it is; the value says which Python type it must have, None = any.
_PLAIN: dict[Any, type | None] = {
    NO_ANNOTATION: None,
    Any: None,
    object: None,
    type(None): type(None),
    dict: dict,
    list: list,
    collections.abc.Mapping: dict,
    collections.abc.Sequence: list,
}
_SHOWN = 5


class UnusableAnnotation(Exception):
    """No value can be made by this annotation; the message says why."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value of an annotation is read and written.

    With an adapter pydantic validates it. Without, it is plain JSON of `plain_type` (None = any),
    or, with `raw`, bytes as they are.
    """

    name: str
    adapter: TypeAdapter[Any] | None = None
    plain_type: type | None = None
    raw: bool = False


def shape_of(annotation: Any) -> Shape:
    """The shape of a resolved annotation; raises UnusableAnnotation."""
    if isinstance(annotation, Unresolved):
        raise UnusableAnnotation(
            f"its annotation {annotation} cannot be resolved; define or import the name at module "
            "level, not under `if TYPE_CHECKING`, or in the function that registers the handler"
        )
    name = annotation_name(annotation)
    if annotation is bytes:
        return Shape(name, plain_type=bytes, raw=True)
    origin = _plain_origin(annotation)
    if origin in _PLAIN:
        return Shape(name, plain_type=_PLAIN[origin])
    return Shape(name, adapter=_adapter(annotation, name))


def _plain_origin(annotation: Any) -> Any:
    """`dict` for dict and dict[str, Any], `list` for list and list[Any]; else the annotation."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin in (dict, collections.abc.Mapping) and arguments == (str, Any):
        return origin
    if origin in (list, collections.abc.Sequence) and arguments == (Any,):
        return origin
    if arguments:
        return annotation
    return origin or annotation  # typing.Dict and typing.List without arguments


def _adapter(annotation: Any, name: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.rebuild(raise_errors=True)
    except PydanticUndefinedAnnotation as error:
        raise UnusableAnnotation(
            f"its annotation {name} uses {error.name!r}, which is not defined; "
            "define or import it before the worker starts"
        ) from error
    except PydanticSchemaGenerationError as error:
        raise UnusableAnnotation(
            f"its annotation {name} is nothing that pydantic can make from JSON; use a pydantic "
            "model, a dataclass, a TypedDict, dict, list or bytes"
        ) from error
    except PydanticUserError as error:
        why = str(error).splitlines()[0]
        raise UnusableAnnotation(f"its annotation {name} is refused by pydantic: {why}") from error
    return adapter


def annotation_name(annotation: Any) -> str:
    """An annotation as it is written in source."""
    if annotation is NO_ANNOTATION:
        return "nothing"
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def explain(error: ValidationError) -> str:
    """What is wrong, in one line, without the values (they may be secret)."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    texts = []
    for problem in problems[:_SHOWN]:
        where = ".".join(str(part) for part in problem["loc"])
        texts.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    if len(problems) > _SHOWN:
        texts.append(f"and {len(problems) - _SHOWN} more")
    return "; ".join(texts)
