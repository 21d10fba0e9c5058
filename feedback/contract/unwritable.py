"""Where in a payload that cannot be written as JSON the fault is, for the message of the error."""

from __future__ import annotations

from typing import Any, Final

_DEEPEST: Final = 250
"""Levels below which it is not looked."""
_WRITABLE: Final = (str, int, float, bool, type(None))


def refuse_unwritable(value: Any) -> None:
    """Raises ValueError that names the first place JSON has no form for; else returns."""
    _look(value, "payload", ())


def _look(value: Any, path: str, above: tuple[int, ...]) -> None:
    if isinstance(value, str):
        check_text(path, value)
    elif isinstance(value, dict | list | tuple):
        if id(value) in above:
            raise ValueError(f"{path} contains itself, which JSON has no form for")
        if len(above) > _DEEPEST:
            return
        inside = (*above, id(value))
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, str):
                    check_text(f"a key of {path}", key)
                _look(item, f"{path}[{key!r}]", inside)
        else:
            for n, item in enumerate(value):
                _look(item, f"{path}[{n}]", inside)
    elif not isinstance(value, _WRITABLE) and not _has_form(value):
        raise ValueError(
            f"{path} is of type {type(value).__name__}, which has no JSON form: "
            "convert it before submitting"
        )


def check_text(path: str, text: str) -> None:
    """Raises ValueError for text that UTF-8 has no form for."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path} holds half of a surrogate pair (U+{ord(text[error.start]):04X} at "
            f"{error.start}), which UTF-8 has no form for"
        ) from None


def _has_form(value: Any) -> bool:
    """Whether a writer may know it: what it says of that is told as it is."""
    return type(value) is not object and not isinstance(value, set | frozenset | bytes | complex)
