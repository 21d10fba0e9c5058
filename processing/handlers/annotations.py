"""What annotations ask of a value, of one in a batch too: plain JSON, bytes, a pydantic type."""

from __future__ import annotations

import collections.abc
import types
import typing
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)

from processing.handlers.request import Request
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
_REQUESTS = "a batch handler gets a list of requests: annotate it list[Request] or list[Request[T]]"
_RESULTS = "a batch handler returns a list, as list[Receipt]"


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


def payload_in(annotation: Any) -> Any:
    """`T` of `list[Request[T]]`; raises UnusableAnnotation."""
    item = _item(annotation, _REQUESTS)
    if item in (NO_ANNOTATION, Any, Request) or isinstance(item, Unresolved):
        return item if isinstance(item, Unresolved) else NO_ANNOTATION
    if typing.get_origin(item) is not Request:
        raise UnusableAnnotation(f"{annotation_name(item)} is no request; {_REQUESTS}")
    (payload,) = typing.get_args(item)
    return NO_ANNOTATION if isinstance(payload, typing.TypeVar) else payload


def result_in(annotation: Any) -> Any:
    """`Receipt` of `list[Receipt | Reject]`: an exception stands for its request, as no result."""
    item = _item(annotation, _RESULTS)
    if typing.get_origin(item) not in (typing.Union, types.UnionType):
        return NO_ANNOTATION if _is_exception(item) else item
    kept = tuple(member for member in typing.get_args(item) if not _is_exception(member))
    return typing.Union[kept] if kept else NO_ANNOTATION  # noqa: UP007 - the members are data


def _item(annotation: Any, advice: str) -> Any:
    """`X` of `list[X]` or `Sequence[X]`."""
    if isinstance(annotation, Unresolved):
        return annotation
    if annotation in (NO_ANNOTATION, Any, list):
        return NO_ANNOTATION
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if not (isinstance(origin, type) and issubclass(list, origin) and len(arguments) == 1):
        raise UnusableAnnotation(f"{annotation_name(annotation)} is no list; {advice}")
    return arguments[0]


def _is_exception(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseException)
