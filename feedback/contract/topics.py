"""The names that Kafka takes for topics."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic(name: object) -> None:
    """Raises ValueError for what can be no topic's name.

    Nor may it begin with ^: it would be taken for a pattern of names.
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or name in (".", ".."):
        raise ValueError(
            f"{name!r} is no topic's name: 1 to 249 letters, digits, dots, underscores and hyphens"
        )
