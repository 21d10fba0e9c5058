"""What `oncepool check` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    state: Literal["ok", "warning", "wrong"]
    detail: str
    advice: str = ""
