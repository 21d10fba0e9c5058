"""How users are told what is wrong with an option or a policy."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from pydantic import ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from processing.handlers.errors import RegistrationError

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, extra="forbid")
"""For pydantic dataclasses: True is no number, and neither is "5"; what is misspelt is refused."""


def unknown_option(name: str, options: Collection[str]) -> str:
    """What is said of an option that there is not."""
    hint = did_you_mean(name, options)
    return f"the option {name!r} is unknown{hint} Options: {', '.join(options)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: with the known one that is most like it."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else "."


def refusal(
    error: ValidationError, fields: Mapping[str, FieldInfo], call: str = ""
) -> RegistrationError:
    """The error in words: what was given, and what the field's description says it takes.

    `call` names what was called, where the field alone does not.
    """
    problem = error.errors(include_url=False)[0]
    place = problem["loc"][0]
    name = list(fields)[place] if isinstance(place, int) and place < len(fields) else place
    if name in fields:
        given, wanted = f"{name}={problem['input']!r}", fields[str(name)].description
        return RegistrationError(f"{call}({given}): {wanted}" if call else f"{given}: {wanted}")
    if isinstance(name, int):
        text = f"it takes {len(fields)} arguments. Options: {', '.join(fields)}"
    else:
        text = unknown_option(name, fields)
    return RegistrationError(f"{call}: {text}" if call else text)
