"""What setup installs is complete: it takes what the lock names and resolves nothing.

`pip check` and `uv pip check` do not look at what is needed for the extras that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def test_whatever_the_project_and_its_extras_need_is_installed() -> None:
    extras = metadata("oncepool").get_all("Provides-Extra") or []
    missing = list(_missing(Requirement(f"oncepool[{','.join(extras)}]"), seen=set()))

    assert missing == []


def _missing(wanted: Requirement, seen: set[tuple[str, str]]) -> Iterator[str]:
    """What `wanted` needs and is not installed, or not in a version that it may have."""
    name = canonicalize_name(wanted.name)
    try:
        found = version(name)
    except PackageNotFoundError:
        yield f"{wanted} is not installed"
        return
    if not wanted.specifier.contains(found, prereleases=True):
        yield f"{wanted} is installed as {found}"
    for extra in {"", *wanted.extras} - {extra for known, extra in seen if known == name}:
        seen.add((name, extra))
        for text in requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                yield from _missing(needed, seen)
