"""What is kept as pickles, and read again by later versions of the suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any


class Pickled:
    """A dataclass whose older pickles may lack fields, or have some that are no more.

    What they lack has its default.
    """

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            if one.name in state:
                value = state[one.name]
            else:
                value = one.default if one.default_factory is MISSING else one.default_factory()
            setattr(self, one.name, value)
