"""Ids and types in paths: they may hold a slash, which stands there as %2F.

ASGI servers decode a path as a whole, after which such a slash looks like one between segments. So
the path is decoded here, segment by segment, and what would be mistaken stays encoded until a
parameter of the kind `name` takes it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor

_KEPT: Final = str.maketrans({"%": "%25", "/": "%2F"})


def routed_path(raw_path: bytes) -> str:
    """The path by which routes are found. Raises ValueError where it is not UTF-8."""
    segments = raw_path.split(b"/")
    return "/".join(unquote_to_bytes(one).decode().translate(_KEPT) for one in segments)


def routed_below(raw_path: bytes, path: str) -> tuple[str, str] | None:
    """`raw_path` as a path to find routes by, and what stands in it before `path`.

    None where it does not end in that: it is another path, of a host that has rewritten it. Raises
    ValueError where it is not UTF-8.
    """
    raw_path = raw_path.partition(b"?")[0]  # some hosts have the query in it
    front = unquote_to_bytes(raw_path).decode().removesuffix(path)
    segments = raw_path.split(b"/")[front.count("/") + 1 :]
    rest = b"".join(b"/" + one for one in segments)
    if unquote_to_bytes(rest).decode() != path:
        return None
    return routed_path(rest), front


def root_in_url(root_path: str) -> str:
    """The front of all paths of an application, as it stands in URLs."""
    return quote(root_path.rstrip("/"), safe="/~")


def in_path(name: str) -> str:
    """A segment of a URL's path."""
    return quote(name, safe="")


class NameConvertor(Convertor[str]):
    """A segment that is an id, a type, or the name of a dead letter."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return in_path(value)


register_url_convertor("name", NameConvertor())
