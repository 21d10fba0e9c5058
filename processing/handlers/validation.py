"""How users are told what is wrong with an option or a policy."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from processing.handlers.errors import RegistrationError

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
"""For pydantic dataclasses: True is no number, and neither is "5"."""


def refusal(
    error: ValidationError, fields: Mapping[str, FieldInfo], call: str = ""
) -> RegistrationError:
    """The error in words: what was given, and what the field's description says it takes.

    `call` names what was called, where the field alone does not.
    """
    problem = error.errors(include_url=False)[0]
    name = str(problem["loc"][0])
    given, wanted = f"{name}={problem['input']!r}", fields[name].description
    return RegistrationError(f"{call}({given}): {wanted}" if call else f"{given}: {wanted}")
