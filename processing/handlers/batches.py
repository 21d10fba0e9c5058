"""What a batch handler's annotations say of one request: of its payload and of its result."""

from __future__ import annotations

import types
import typing
from typing import Any

from processing.handlers.annotations import UnusableAnnotation, annotation_name
from processing.handlers.request import Request
from processing.handlers.signature import NO_ANNOTATION, Unresolved

_REQUESTS = "a batch handler gets a list of requests: annotate it list[Request] or list[Request[T]]"
_RESULTS = "a batch handler returns a list, as list[Receipt]"


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
